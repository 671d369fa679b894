#include "harness/cli/compare_race.h"

#include <signal.h>

#include <algorithm>
#include <iostream>

#include "engine/base/process.h"
#include "engine/base/strings.h"
#include "engine/run/settings.h"
#include "harness/cli/stop_request.h"
#include "harness/profile/command.h"
#include "harness/profile/profile.h"
#include "harness/report/live_table.h"
#include "harness/report/page_parts.h"
#include "harness/report/pair_words.h"
#include "harness/report/write.h"
#include "harness/stats/text.h"
#include "harness/sweep/load.h"
#include "harness/sweep/pair.h"
#include "harness/sweep/sweep.h"
#include "harness/watch/watched.h"

namespace pinion::harness {
namespace {

// The two sides, and the settings that they share.
struct ComparedSides {
  const char* kind;                // "build", "profile"
  std::vector<std::string> files;  // as the user named them
  std::vector<EngineChoice> engines;
  std::string model;
  Objective objective;
};

bool CanMeasure(Objective objective) {
  return RowOf(objective).at_load || objective <= Objective::kBalanced;
}

ComparedSides SidesOfBuilds(const CompareRaceFlags& flags) {
  ComparedSides sides{"build", flags.builds, {}, flags.model, Objective::kThroughput};
  for (const std::string& file : flags.builds) sides.engines.emplace_back().binary = file;
  return sides;
}

Result<ComparedSides> SidesOfProfiles(const CompareRaceFlags& flags) {
  ComparedSides sides{"profile", flags.profiles, {}, "", Objective::kThroughput};
  for (const std::string& file : flags.profiles) {
    PINION_ASSIGN(const Profile profile, ReadProfile(file));
    const std::string& model = profile.configuration.options.model;
    if (!sides.model.empty() && sides.model != model)
      return Fail(ErrorCode::kUsage, StrCat("the profiles are of different models, ", sides.model,
                                            " and ", model, ": a race needs one model"));
    const auto objective = ParseObjective(profile.objective);
    if (sides.model.empty() && objective && CanMeasure(*objective)) sides.objective = *objective;
    sides.model = model;
    EngineChoice& engine = sides.engines.emplace_back();
    for (const SettingRow& row : SettingRows())
      if (const Json value = row.get(profile.configuration); value != row.get({}) && row.varies)
        engine.settings.Set(row.key, value);
  }
  return sides;
}

Result<ComparedSides> SidesOf(const CompareRaceFlags& flags) {
  ComparedSides sides = SidesOfBuilds(flags);
  if (!flags.profiles.empty()) {
    PINION_ASSIGN(sides, SidesOfProfiles(flags));
  }
  sides.engines[0].name = "A";
  sides.engines[1].name = "B";
  if (!flags.objective) return sides;
  PINION_ASSIGN(sides.objective, ParseObjective(*flags.objective));
  if (CanMeasure(sides.objective)) return sides;
  return Fail(
      ErrorCode::kUsage,
      StrCat("--objective ", *flags.objective, " needs a sweep's definition; compare takes ",
             "throughput, latency, balanced, or a latency under load such as itl_p95@8"));
}

// Nothing but the two sides: their race runs rounds as long as the budget lasts.
Result<Definition> DefinitionOf(const ComparedSides& sides, const CompareRaceFlags& flags) {
  constexpr double kMostThreshold = 0.5;  // of a definition's epsilon
  if (flags.threshold > kMostThreshold)
    return Fail(ErrorCode::kUsage, StrCat("--threshold is ", Percent(flags.threshold),
                                          "; of builds and profiles it is at most 50 %"));
  Definition definition;
  definition.engines = sides.engines;
  definition.objectives = {sides.objective};
  PINION_ASSIGN(definition.budget_s, ParseDuration(flags.budget, "--budget"));
  // A batch tells most per second; a single client's latency varies several times as much. A small
  // one makes short waves, between which a machine's speed changes less.
  Workload& workload =
      definition.workload = {{.shape = WorkloadShape::Fixed(64, 32), .num_prompts = 8}, {}};
  if (sides.objective != Objective::kThroughput)
    workload.concurrency = {std::max(1, sides.objective.level.clients)};
  if (sides.objective.level.is_open()) workload.rates = {sides.objective.level.rate};
  LoadPlan& load = workload.load;
  load.num_prompts =
      std::max(load.num_prompts, LeastPrompts(sides.objective, load.shape.output_len()));
  definition.strategy = Strategy::kPair;
  definition.rounds = flags.rounds;
  definition.epsilon = std::max(flags.threshold, kLeastEpsilon);
  PINION_TRY(Validate(definition));
  return definition;
}

// A command line that repeats the race, even if defaults of flags change.
std::string CommandLineOf(const CompareRaceFlags& flags, const Objective& objective) {
  constexpr double kPercent = 100;
  Command command{{}, {"pinion", "compare"}};
  std::vector<std::string>& words = command.arguments;
  for (const std::string& build : flags.builds) words.insert(words.end(), {"--build", build});
  words.insert(words.end(), flags.profiles.begin(), flags.profiles.end());
  if (!flags.model.empty()) words.push_back(flags.model);
  words.insert(words.end(), {"--objective", Name(objective), "--budget", flags.budget,
                             "--threshold", StrCat(flags.threshold * kPercent)});
  if (flags.rounds != kMaxRounds) words.insert(words.end(), {"--rounds", StrCat(flags.rounds)});
  return ShellText(command);
}

Result<SweepRequest> RequestFor(const ComparedSides& sides, const CompareRaceFlags& flags) {
  EngineOptions base;
  base.has_frontend = true;
  base.model = sides.model;
  PINION_ASSIGN(const Host host, Host::This());
  PINION_ASSIGN(const Definition definition, DefinitionOf(sides, flags));
  SweepRequest request;
  PINION_ASSIGN(request.meta,
                DescribeSweep(definition, base, host, CommandLineOf(flags, sides.objective)));
  request.folder = flags.out.empty() ? StrCat("out/compare-", NowIso8601()) : flags.out;
  request.binary = SelfPath();
  request.interrupted = StopRequested;
  return request;
}

// Why a side keeps failing or, if there is no verdict, has too few numbers for one. Empty: too few
// rounds alone.
std::string LostSide(const Results& results, const char* kind, bool has_verdict,
                     const std::string& folder) {
  for (const Candidate& candidate : results.candidates) {
    const std::string why = WhyExcluded(candidate);
    if (why.empty() || (has_verdict && !GaveOut(candidate.status))) continue;
    const std::string log =
        candidate.log_path.empty() ? "" : StrCat("; see ", folder, "/", candidate.log_path);
    return StrCat(kind, " ", candidate.engine, " ", why, log);
  }
  return "";
}

// The verdict, and the results for the report.
Result<PairVerdict> RunRace(const SweepRequest& request, const char* kind, Results& results) {
  SweepEnd end = SweepEnd::kInterrupted;
  {
    WatchedProgress progress(request.folder, LiveTable, nullptr);
    PINION_ASSIGN(end, RunSweep(request, progress));
  }
  if (end == SweepEnd::kInterrupted) return Fail(ErrorCode::kFailed, "interrupted");
  PINION_ASSIGN(results, LoadResults(request.folder));
  PINION_ASSIGN(const auto store, Store::Open(request.folder + "/results.db"));
  PINION_ASSIGN(const std::vector<TrialRow> trials, store->Trials());
  const Definition& definition = request.meta.definition;
  PairVerdict verdict = JudgePair(trials, definition.objectives.front(), definition);
  const bool has_verdict = verdict.kind != PairVerdict::Kind::kTooFewRounds;
  if (const std::string why = LostSide(results, kind, has_verdict, request.folder); !why.empty())
    return Fail(ErrorCode::kFailed, why);
  return verdict;
}

}  // namespace

Result<bool> CompareRace(const CompareRaceFlags& flags) {
  PINION_TRY(FindPageParts());  // else the report fails after all trials
  CatchStopRequests({SIGINT, SIGTERM});
  PINION_ASSIGN(const ComparedSides sides, SidesOf(flags));
  PINION_ASSIGN(const SweepRequest request, RequestFor(sides, flags));
  Results results;
  PINION_ASSIGN(const PairVerdict verdict, RunRace(request, sides.kind, results));
  if (verdict.kind == PairVerdict::Kind::kTooFewRounds)
    return Fail(ErrorCode::kFailed, std::string(Trim(Render(verdict, "A", "B"))));
  Json json = ToJson(verdict);
  json.Set(StrCat(sides.kind, "s"), Json(sides.files));
  json.Set("folder", request.folder);
  std::cout << (flags.json ? json.Dump(2) + "\n"
                           : StrCat("A  ", sides.files[0], "\nB  ", sides.files[1], "\n",
                                    Render(verdict, "A", "B")))
            << std::flush;
  PINION_TRY(WriteOutputs(results, request.folder));
  std::cerr << "all trials: " << request.folder << "/report.html" << std::endl;
  return verdict.kind == PairVerdict::Kind::kWorse;
}

}  // namespace pinion::harness
