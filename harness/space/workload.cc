// The load of a definition, and its SLO, as JSON.

#include "engine/base/strings.h"
#include "harness/space/definition.h"
#include "harness/space/json_fields.h"

namespace pinion::harness {
namespace {

// A limit in seconds or as "500ms".
JsonField<SloTarget> Limit(const char* key, std::optional<double> Slo::*member) {
  return {key,
          [=](const Json& value, SloTarget& slo) -> Status {
            const std::string what = StrCat("'", key, "' in 'slo'");
            PINION_ASSIGN(slo.limits.*member, ToSeconds(value, what));
            if (*(slo.limits.*member) > 0) return {};
            return Fail(ErrorCode::kUsage, StrCat(what, " must be above 0 seconds"));
          },
          [=](const SloTarget& slo) {
            return slo.limits.*member ? Json(*(slo.limits.*member)) : Json();
          }};
}

Status ReadLoad(const Json& value, SloTarget& slo) {
  PINION_ASSIGN(const std::string kind, ToText(value, "'load' in 'slo'"));
  if (kind != "rate" && kind != "concurrency")
    return Fail(ErrorCode::kUsage,
                StrCat("'load' in 'slo' must be rate or concurrency, not ", kind));
  slo.by_rate = kind == "rate";
  return {};
}

const JsonFields<SloTarget>& SloFields() {
  static const JsonFields<SloTarget> fields = {
      Limit("ttft", &Slo::ttft_s),
      Limit("tpot", &Slo::tpot_s),
      Limit("e2el", &Slo::e2el_s),
      Value("attain", &SloTarget::attain, ToNumber),
      {"load", ReadLoad,
       [](const SloTarget& slo) { return Json(slo.by_rate ? "rate" : "concurrency"); }},
      Maybe("start", &SloTarget::start, ToNumber),
  };
  return fields;
}

// The first load of a search is one that the search may try.
Status CheckStart(const SloTarget& slo) {
  const double least = slo.by_rate ? kLeastRate : 1, most = slo.by_rate ? kMaxRate : kMaxClients;
  const double start = slo.start.value_or(least);
  if (start >= least && start <= most) return {};
  return Fail(ErrorCode::kUsage, StrCat("'start' in 'slo' is ", start, "; it must be from ", least,
                                        " to ", most, " ", slo.unit()));
}

Status ReadSlo(const Json& value, Workload& workload) {
  SloTarget slo;
  PINION_TRY(ReadFields(value, "'slo'", SloFields(), slo));
  if (!slo.limits.any())
    return Fail(ErrorCode::kUsage,
                "'slo' needs a limit: 'ttft', 'tpot' or 'e2el', such as \"500ms\"");
  if (!(slo.attain > 0 && slo.attain <= 1))
    return Fail(ErrorCode::kUsage, StrCat("'attain' in 'slo' is ", slo.attain,
                                          "; it must be a share above 0 and at most 1"));
  PINION_TRY(CheckStart(slo));
  workload.slo = slo;
  return {};
}

// Reads the name's workload first, so that other keys override it.
Status ReadName(const Json& value, Workload& workload) {
  PINION_ASSIGN(const std::string name, ToText(value, "'name' in 'workload'"));
  PINION_ASSIGN(workload.load.shape, FindWorkload(name));
  return {};
}

Json WriteName(const Workload& workload) {
  const std::string& name = workload.load.shape.name;
  return name == kFixedShape ? Json() : Json(name);
}

// Whether the workload, or the one that its name alone stands for, has a prefix: a 0 in place of
// the name's own has to be written.
bool HasPrefix(const Workload& workload) {
  const auto named = FindWorkload(workload.load.shape.name);
  return workload.load.shape.shared_prefix > 0 || (named && named->shared_prefix > 0);
}
bool HasTurns(const Workload& workload) { return workload.load.shape.turns > 1; }

// A whole number of the load; of lengths their median.
template <typename Member>
JsonField<Workload> OfLoad(const char* key, Member member) {
  return {key,
          [=](const Json& value, Workload& workload) -> Status {
            PINION_ASSIGN(member(workload.load), ToInt(value, StrCat("'", key, "'")));
            return {};
          },
          [=](const Workload& workload) { return Json(static_cast<int>(member(workload.load))); }};
}

Result<bool> ToBool(const Json& value, const std::string& what) {
  if (value.is_bool()) return value.boolean();
  return Fail(ErrorCode::kUsage, StrCat(what, " must be true or false, not ", Excerpt(value)));
}

// [] for no loops.
Status ReadConcurrency(const Json& value, Workload& workload) {
  if (!value.is_array() || !value.array().empty())
    return ReadList(value, "concurrency", ToInt, workload.concurrency);
  workload.concurrency.clear();
  return {};
}

constexpr auto kPromptLen = [](auto& load) -> auto& { return load.shape.prompt.a; };
constexpr auto kOutputLen = [](auto& load) -> auto& { return load.shape.output.a; };
constexpr auto kNumPrompts = [](auto& load) -> auto& { return load.num_prompts; };
constexpr auto kSharedPrefix = [](auto& load) -> auto& { return load.shape.shared_prefix; };
constexpr auto kPrefixes = [](auto& load) -> auto& { return load.shape.prefixes; };
constexpr auto kTurns = [](auto& load) -> auto& { return load.shape.turns; };

const JsonFields<Workload>& WorkloadFields() {
  static const JsonFields<Workload> fields = {
      {"name", ReadName, WriteName},
      OfLoad("prompt_len", kPromptLen),
      OfLoad("output_len", kOutputLen),
      // Always written: without loops there is the batch alone, which is not the default.
      {"concurrency", ReadConcurrency,
       [](const Workload& workload) { return Json(workload.concurrency); }},
      List("request_rate", &Workload::rates, ToNumber),
      OfLoad("num_prompts", kNumPrompts),
      OnlyIf(HasPrefix, OfLoad("shared_prefix", kSharedPrefix)),
      OnlyIf(HasPrefix, OfLoad("prefixes", kPrefixes)),
      OnlyIf(HasTurns, OfLoad("turns", kTurns)),
      Maybe("batch", &Workload::batch, ToBool),
      {"slo", ReadSlo,
       [](const Workload& workload) {
         return workload.slo ? WriteFields(SloFields(), *workload.slo) : Json();
       }},
  };
  return fields;
}

}  // namespace

Status FromJson(const Json& object, Workload& workload) {
  PINION_TRY(CheckTexts(object));
  PINION_TRY(ReadFields(object, "'workload'", WorkloadFields(), workload));
  return Validate(workload);
}

Json ToJson(const Workload& workload) { return WriteFields(WorkloadFields(), workload); }

}  // namespace pinion::harness
