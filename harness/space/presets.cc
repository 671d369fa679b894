// The spaces that `pinion sweep` searches without --def.

#include "harness/space/bindings.h"
#include "harness/space/expand.h"
#include "kernels/isa.h"

namespace pinion::harness {
namespace {

// `scalar` is a reference, not a contestant. Without integer matrices the VNNI paths equal the
// paths that they extend.
bool IsContestant(const std::string& name, const SpaceContext& context) {
  const auto isa = kernels::ParseIsa(name);
  if (!isa || isa == kernels::Isa::kScalar) return false;
  return context.has_integers || kernels::FloatPath(*isa) == *isa;
}

// Paths that differ for this model, from the fastest down; none for an engine without the setting.
std::vector<std::string> FastestIsas(const Host& host, const SpaceContext& context, size_t count) {
  std::vector<std::string> fastest;
  if (!HasSetting(context.engine, "isa")) return fastest;
  for (auto isa = host.isas.rbegin(); isa != host.isas.rend() && fastest.size() < count; ++isa)
    if (IsContestant(*isa, context)) fastest.push_back(*isa);
  return fastest;
}

Json Single(const char* key, Json value) { return Json::Object{{key, std::move(value)}}; }

// A smaller step budget lets decodes continue between the chunks of a long prompt.
constexpr int kSmallStep = 256;

// Candidates that differ from the base in one decision each.
class Alone {
 public:
  Alone(const EngineChoice& engine, std::vector<Json>& candidates)
      : engine_(engine), candidates_(candidates) {}

  void Add(const char* key, const Json& value) { Add(Json::Object{{key, value}}); }
  // Nothing if the engine lacks one of the values.
  void Add(const Json& point) {
    for (const auto& [key, value] : point.object())
      if (!HasValue(engine_, *FindSetting(key), value)) return;
    candidates_.push_back(point);
  }

 private:
  const EngineChoice& engine_;
  std::vector<Json>& candidates_;
};

// Bindings are crossed with ranks; lists, which fit one number of ranks, stand alone. Replicas are
// the other way to use several nodes.
void AddPlacements(const Host& host, const EngineOptions& base, const SpaceContext& context,
                   Alone& alone, Definition& definition) {
  constexpr int kMostReserved = 2;
  const int nodes = NodesWithCpus(host), sockets = SocketsWithCpus(host);
  std::vector<Json> parts;
  for (const int count : {sockets, nodes})
    if (count > 1 && (parts.empty() || parts.back() != Json(count))) parts.emplace_back(count);
  SetAxis("threads_bind", {"auto", "all", "nobind"}, definition.axes);
  if (base.tensor_parallel == 1 && !parts.empty() &&
      HasSetting(context.engine, "tensor_parallel")) {
    std::vector<Json> ranks = {1};
    ranks.insert(ranks.end(), parts.begin(), parts.end());
    SetAxis("tensor_parallel", std::move(ranks), definition.axes);
  }
  for (int reserved = 0; reserved <= kMostReserved; ++reserved)
    alone.Add("reserved_cpus", reserved);
  for (const ExplicitBinding& binding : ExplicitBindings(host)) {
    if (base.tensor_parallel != 1) break;
    Json point = Json::Object{{"threads_bind", binding.list}};
    if (binding.ranks > 1) point.Set("tensor_parallel", binding.ranks);
    alone.Add(point);
  }
  if (HasSiblings(host)) alone.Add("smt", "on");
  if (nodes > 1) alone.Add("memory_policy", "interleave");
  for (const Json& count : parts) alone.Add("replicas", count);
  if (!parts.empty()) alone.Add(Json::Object{{"replicas", parts.back()}, {"prefill_replicas", 1}});
}

// The bytes of all of the load's contexts, and half and a quarter of that, so that it binds. Less
// than two contexts would measure one sequence at a time.
std::vector<double> KvSpaces(const SpaceContext& context) {
  constexpr uint64_t kMib = 1 << 20;
  std::vector<double> gib;
  for (const int part : {1, 2, 4}) {
    const uint64_t bytes = context.kv_bytes_of_load / static_cast<uint64_t>(part);
    if (context.kv_bytes_of_load > 0 && bytes >= 2 * context.kv_bytes_of_context) {
      const uint64_t mib = (bytes + kMib - 1) / kMib;
      gib.push_back(static_cast<double>(mib) / 1024);
    }
  }
  return gib;
}

}  // namespace

Definition DefaultDefinition(const Host& host, const EngineOptions& base,
                             const SpaceContext& context) {
  Definition definition;
  Alone alone(context.engine, definition.candidates);
  AddPlacements(host, base, context, alone, definition);
  // Merged points are labelled by the first of them, so the base's own values need no mention.
  if (const auto isas = FastestIsas(host, context, 2); base.isa == "auto" && isas.size() > 1)
    alone.Add("isa", isas[1]);
  alone.Add("max_num_batched_tokens", kSmallStep);
  for (const double gib : KvSpaces(context)) alone.Add("kv_cache_space", gib);
  if (base.dtype == "auto" && !context.dtype.empty())
    alone.Add("dtype", context.dtype == "bfloat16" ? "float16" : "bfloat16");
  if (base.kv_cache_dtype == "auto")
    for (const char* type : {"int8", "fp8_e5m2"}) alone.Add("kv_cache_dtype", type);
  // Unavailable ones stay listed with the reason. For another machine that is unknown.
  if (!host.machine.this_system) return definition;
  for (const RuntimeSetting& setting : RuntimeSettings())
    for (size_t i = 1; i < setting.values.size(); ++i) alone.Add(setting.key, setting.values[i]);
  return definition;
}

Definition QuickDefinition(const Host& host, const EngineOptions& base,
                           const SpaceContext& context) {
  constexpr size_t kOthers = 5;  // 6 with the baseline
  Definition definition;
  definition.budget_s = 600;
  definition.rounds = 6;
  definition.trial_limit_s = 12;
  definition.workload = {{.shape = WorkloadShape::Fixed(128, 32), .num_prompts = 4}, {1, 4}};
  std::vector<Json>& candidates = definition.candidates;
  const bool has_ranks = HasSetting(context.engine, "tensor_parallel");
  if (const int nodes = NodesWithCpus(host); nodes > 1 && base.tensor_parallel == 1 && has_ranks)
    candidates.push_back(Single("tensor_parallel", nodes));
  if (HasSiblings(host)) candidates.push_back(Single("smt", "on"));
  const std::vector<std::string> isas = FastestIsas(host, context, 3);
  if (isas.size() > 1) candidates.push_back(Single("isa", isas[1]));
  if (const std::string half = HalfTheCores(host); !half.empty() && base.tensor_parallel == 1)
    candidates.push_back(Single("threads_bind", half));
  candidates.push_back(Single("max_num_batched_tokens", kSmallStep));
  if (isas.size() > 2) candidates.push_back(Single("isa", isas[2]));
  candidates.push_back(Single("threads_bind", "nobind"));
  if (candidates.size() > kOthers) candidates.resize(kOthers);
  return definition;
}

}  // namespace pinion::harness
