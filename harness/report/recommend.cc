#include "harness/report/recommend.h"

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"
#include "harness/profile/command.h"
#include "harness/profile/other_engines.h"
#include "harness/report/export.h"
#include "harness/report/words.h"
#include "harness/space/own_settings.h"

namespace pinion::harness {
namespace {

Configuration LaunchedBy(const Results& results, const Candidate& candidate) {
  Configuration configuration = candidate.configuration;
  configuration.options.model = results.model;
  return configuration;
}

Json ExpectedJson(const Candidate& candidate) {
  Json list = Json::MakeArray();
  for (const Series& series : candidate.series) {
    const MetricInfo* metric = FindMetric(series.metric);
    if (metric && metric->describes) continue;
    Json json = Json::Object{{"metric", series.metric}, {"unit", metric ? metric->unit : ""}};
    SetLevel(series.level, json);
    json.Set("n", static_cast<uint64_t>(series.estimate.n));
    json.Set("median", series.estimate.median);
    json.Set("interval", IntervalJson(series.estimate.interval));
    list.Append(std::move(json));
  }
  return list;
}

// The CPUs of every rank and of the front end.
Json PlanJson(const Plan& plan) {
  if (plan.ranks.empty()) return Json::MakeObject();
  const Json whole = ToJson(plan);
  return Json::Object{{"ranks", *whole.Find("ranks")},
                      {"frontend_cpus", *whole.Find("frontend_cpus")}};
}

Json EvidenceJson(const Results& results, const Verdict& verdict, const std::string& folder) {
  Json json;
  if (const Candidate* candidate = results.Find(verdict.recommended))
    json.Set("plan", PlanJson(candidate->plan));
  json.Set("outcome", Name(verdict.outcome));
  json.Set("sentence", Sentence(results, verdict));
  json.Set("ratio_to_default", EstimateJson(verdict.ratio));
  json.Set("floor", verdict.floor);
  json.Set("confirmed", verdict.confirmed);
  json.Set("finished", results.finished);
  json.Set("rounds", results.rounds_done);
  json.Set("confirmation_rounds", results.confirmation_rounds);
  json.Set("sweep", folder);
  json.Set("command_line", results.command_line);
  json.Set("version", results.version);
  json.Set("commit", results.commit);
  json.Set("started_at", results.started_at);
  json.Set("updated_at", results.updated_at);
  json.Set("workload", ToJson(results.definition.workload));
  json.Set("model_facts", results.model_facts);
  return json;
}

}  // namespace

EngineChoice EngineOf(const Results& results, const Candidate& candidate) {
  return WithOwnSettings(EngineNamed(results.definition, candidate.engine), candidate.settings);
}

std::string ProfileFile(const std::string& objective) { return "profiles/" + objective + ".json"; }

std::string ProfilePath(const std::string& folder, const std::string& objective) {
  const size_t end = folder.find_last_not_of('/');
  return (end == std::string::npos ? folder : folder.substr(0, end + 1)) + "/" +
         ProfileFile(objective);
}

std::string ProgramOf(const Results& results, const Candidate& candidate) {
  const std::string& binary = EngineNamed(results.definition, candidate.engine).binary;
  if (!binary.empty()) return binary;
  const std::string first = Split(results.command_line, ' ').front();
  const bool ours = first == "pinion" || (first.size() > 7 && first.ends_with("/pinion"));
  return ours ? first : "pinion";
}

Result<std::optional<Profile>> ProfileOf(const Results& results, Objective objective,
                                         const std::string& folder) {
  const Verdict* verdict = results.FindVerdict(objective);
  // `pinion launch` starts only Pinion's own engine.
  if (!verdict || verdict->outcome == Outcome::kNoData) return std::nullopt;
  const Candidate* candidate = results.Find(verdict->recommended);
  if (!candidate)
    return Fail(ErrorCode::kCorrupt,
                StrCat("the verdict on ", verdict->objective,
                       " names a candidate that is not in the sweep: ", verdict->recommended));
  if (!EngineOf(results, *candidate).fits_profile()) return std::nullopt;
  Profile profile;
  profile.objective = verdict->objective;
  profile.configuration = LaunchedBy(results, *candidate);
  profile.machine = results.machine;
  const Json* cpus = results.budget.Find("cpus");
  profile.cpus = cpus ? *cpus : Json::MakeArray();
  profile.expected = ExpectedJson(*candidate);
  profile.evidence = EvidenceJson(results, *verdict, folder);
  return profile;
}

namespace {

// As many clients as the sweep's loads had at most; unknown if requests came at a rate.
ServedLoad LoadOf(const Workload& workload) {
  if (workload.slo || !workload.rates.empty()) return {};
  return {std::max(workload.most_clients(), workload.load.num_prompts)};
}

}  // namespace

LaunchCommands LaunchCommandsOf(const Results& results, const Verdict& verdict,
                                const std::string& folder) {
  const Candidate* candidate = results.Find(verdict.recommended);
  if (verdict.outcome == Outcome::kNoData || !candidate) return {};
  const Configuration configuration = LaunchedBy(results, *candidate);
  const EngineChoice engine = EngineOf(results, *candidate);
  LaunchCommands commands;
  if (!engine.fits_profile()) {
    commands.other = candidate->command;
    return commands;
  }
  commands.pinion = ShellText(
      {{}, {ProgramOf(results, *candidate), "launch", ProfilePath(folder, verdict.objective)}});
  commands.vllm = VllmShellText(configuration, candidate->plan);
  commands.vllm_lacks = WithoutCounterpart(configuration, &SettingRow::vllm);
  commands.llama_cpp =
      LlamaShellText(configuration, candidate->plan, LoadOf(results.definition.workload));
  commands.llama_cpp_lacks = WithoutCounterpart(configuration, &SettingRow::llama_cpp);
  return commands;
}

std::string LacksText(const std::string& engine, const std::vector<std::string>& settings) {
  return settings.empty() ? "" : StrCat(engine, " has no setting for ", Join(settings, ", "), ".");
}

std::string LaunchGroup::objectives() const {
  std::vector<std::string> names;
  for (const Verdict* verdict : verdicts) names.push_back(verdict->objective);
  return Listed(names);
}

std::vector<LaunchGroup> LaunchGroups(const Results& results, const std::string& folder) {
  std::vector<LaunchGroup> groups;
  for (const Verdict& verdict : results.verdicts) {
    LaunchCommands commands = LaunchCommandsOf(results, verdict, folder);
    if (commands.pinion.empty() && commands.other.empty()) continue;
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const LaunchGroup& group) {
      return group.verdicts.front()->recommended == verdict.recommended;
    });
    if (same != groups.end()) {
      same->verdicts.push_back(&verdict);
    } else {
      groups.push_back({std::move(commands), {&verdict}});
    }
  }
  return groups;
}

}  // namespace pinion::harness
