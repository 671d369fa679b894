#include "harness/sweep/divergence.h"

#include <map>

#include "engine/base/file.h"
#include "engine/base/process.h"
#include "engine/base/strings.h"
#include "harness/profile/command.h"
#include "harness/results/figures.h"
#include "harness/space/settings.h"
#include "harness/stats/text.h"
#include "harness/trial/runner.h"

namespace pinion::harness {
namespace {

// The texts to compare on: prose, a dialogue, code and a recipe, about 300 tokens in all.
constexpr const char* kTexts[] = {
    "The river had risen in the night. By morning the lower meadow was a lake, and the three "
    "willows "
    "that marked the old ford stood up to their waists in brown water. Nobody in the village could "
    "remember when it had last come so far, except the miller, who remembered everything and was "
    "believed in nothing.",
    "\"How long does the train take?\" she asked. \"Two hours and ten minutes, if it is on time,\" "
    "said the clerk, \"and it has been on time twice this year.\" She bought the ticket anyway.",
    "def mean(values):\n    \"\"\"The arithmetic mean of a list of numbers.\"\"\"\n    if not "
    "values:\n"
    "        raise ValueError('mean of nothing')\n    return sum(values) / len(values)\n",
    "To make bread you need 500 grams of flour, 350 grams of water, 10 grams of salt and 3 grams "
    "of "
    "dry yeast. Mix them, wait for an hour, fold the dough four times, and wait again until it has "
    "doubled. Bake it at 230 degrees for forty minutes."};

constexpr double kPollSeconds = 0.2;

// The settings that a model's answers depend on and that differ.
std::string Describe(const EngineOptions& base, const EngineOptions& options) {
  std::vector<Setting> guarded;
  for (const Setting& setting : Difference({base}, {options}))
    if (FindSetting(setting.key)->changes_outputs) guarded.push_back(setting);
  return guarded.empty() ? "" : Label(guarded);
}

// The baseline's options with the candidate's guarded settings.
EngineOptions Guard(const EngineOptions& base, const EngineOptions& options) {
  Configuration guarded{base};
  for (const SettingRow& row : SettingRows())
    if (row.changes_outputs) row.set(row.get({options}), guarded);
  return std::move(guarded.options);
}

struct Divergence {
  double kl_nats = 0, top1_agreement = 0;
};

std::vector<std::string> ScoreArguments(const DivergenceCheck& check, const EngineOptions& base,
                                        const EngineOptions& options) {
  std::vector<std::string> arguments = {check.binary, "score"};
  for (std::string& argument : EngineArguments(options)) arguments.push_back(std::move(argument));
  arguments.insert(arguments.end(), {"--input", "-", "--json", "--compare", base.model});
  for (const SettingRow& row : SettingRows())
    if (row.changes_outputs)
      arguments.insert(arguments.end(),
                       {"--reference", StrCat(row.key, "=", SettingText(row.get({base})))});
  return arguments;
}

Result<Divergence> ReadDivergence(const Json& found) {
  Divergence divergence;
  PINION_ASSIGN(divergence.kl_nats, Require<double>(found, "kl_nats"));
  PINION_ASSIGN(divergence.top1_agreement, Require<double>(found, "top1_agreement"));
  return divergence;
}

Result<Divergence> Measure(const DivergenceCheck& check, const EngineOptions& base,
                           const EngineOptions& options) {
  PINION_ASSIGN(TemporaryFile input, TemporaryFile::Make("the texts to compare by"));
  PINION_ASSIGN(const TemporaryFile found, TemporaryFile::Make("the result of the comparison"));
  PINION_ASSIGN(const TemporaryFile log, TemporaryFile::Make("the log"));
  std::string lines;
  for (const char* text : kTexts) lines += Json(Json::Object{{"text", text}}).Dump() + "\n";
  PINION_TRY(input.Write(lines));
  Process::Options process;
  process.arguments = ScoreArguments(check, base, options);
  process.stdin_fd = input.fd();
  process.stdout_fd = found.fd();
  process.stderr_fd = log.fd();
  const int64_t start_ns = check.clock->NowNs();
  PINION_ASSIGN(Process child, Process::Start(process));
  std::optional<Process::Exit> exit;
  while (!(exit = child.Wait(kPollSeconds))) {
    if (check.interrupted()) return Fail(ErrorCode::kFailed, "interrupted");
    if (static_cast<double>(check.clock->NowNs() - start_ns) * 1e-9 > check.limit_s)
      return Fail(ErrorCode::kTimeout,
                  StrCat("the comparison had not ended after ", FormatSeconds(check.limit_s)));
  }
  if (exit->code != 0 || exit->signal != 0)
    return Fail(ErrorCode::kUnsupported, LogTail(log.path(), 1));
  PINION_ASSIGN(const std::string text, ReadFile(found.path()));
  PINION_ASSIGN(const Json json, Json::Parse(text));
  return ReadDivergence(json);
}

// Why the combination may not race; empty if it may.
Result<std::string> Refusal(const DivergenceCheck& check, double limit_nats,
                            const EngineOptions& base, const EngineOptions& options,
                            Progress& progress) {
  const std::string what = Describe(base, options);
  const auto found = Measure(check, base, options);
  if (check.interrupted())
    return Fail(ErrorCode::kFailed, "interrupted before the first trial; nothing has been written");
  if (!found)
    return StrCat("the effect of ", what,
                  " on the output cannot be measured: ", found.error().message);
  const std::string number =
      StrCat(Printf("%.2g", found->kl_nats), " nats of KL divergence per token, ",
             Printf("%.1f", 100 * found->top1_agreement), " % the same best token");
  if (found->kl_nats <= limit_nats) {
    progress.Note(StrCat(what, " changes the output by ", number));
    return std::string();
  }
  return StrCat(what, " changes the output by ", number, ", more than the limit of ",
                Printf("%.3g", limit_nats), " (divergence_limit_nats)");
}

// The options of the baseline's row: its engine may have settings, or a model, of its own. Another
// engine's outputs differ by themselves, so that Pinion's are then compared with those of `base`.
EngineOptions BaselineOf(const Definition& definition, const EngineOptions& base,
                         const std::vector<CandidateRow>& rows) {
  const bool is_pinion = EngineNamed(definition, rows.front().engine).is_pinion();
  return is_pinion ? rows.front().configuration.options : base;
}

}  // namespace

Status CheckDivergence(const DivergenceCheck& check, const Definition& definition,
                       const EngineOptions& base, Progress& progress,
                       std::vector<CandidateRow>& rows) {
  const EngineOptions baseline = BaselineOf(definition, base, rows);
  std::map<std::string, std::string> refusals;
  for (CandidateRow& row : rows) {
    if (!row.infeasible.empty() || !EngineNamed(definition, row.engine).is_pinion()) continue;
    const EngineOptions options = Guard(baseline, row.configuration.options);
    const std::string what = Describe(baseline, options);
    if (what.empty()) continue;
    if (!refusals.contains(what)) {
      PINION_ASSIGN(refusals[what],
                    Refusal(check, definition.divergence_limit_nats, baseline, options, progress));
    }
    row.infeasible = refusals[what];
  }
  return {};
}

}  // namespace pinion::harness
