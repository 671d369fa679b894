#include "harness/cli/sweep_replay.h"

#include <iostream>
#include <utility>
#include <vector>

#include "engine/base/strings.h"
#include "harness/cli/given_file.h"
#include "harness/sweep/planted.h"
#include "harness/sweep/recording.h"
#include "harness/sweep/replay.h"

namespace pinion::harness {

namespace {

// The effects that the file plants on a recorded sweep; without a file, none.
Result<Planted> PlantedOn(const RecordedSweep& recorded, const std::string& file) {
  std::vector<std::string> names;
  for (const RecordedSweep::Contestant& one : recorded.contestants) names.push_back(one.name);
  Json effects = Json::MakeObject();
  if (!file.empty()) {
    PINION_ASSIGN(effects, ReadGivenJson(file));
  }
  auto planted = ParsePlantedOn(names, effects);
  if (!planted) return Unexpected(std::move(planted).error().In(file));
  return planted;
}

}  // namespace

void ReplayFlags::AddTo(CLI::App& command) {
  const std::string group = "Replay";
  auto* replay =
      command
          .add_option("--replay", file,
                      "search on recorded numbers, without an engine: a CSV series of one "
                      "machine's noise, or the results.db of a sweep")
          ->check(CLI::ExistingFile)
          ->group(group);
  command
      .add_option("--metric", metric,
                  "the series' column, or one of the sweep's objectives (default: the first)")
      ->needs(replay)
      ->group(group);
  command
      .add_option("--planted", planted,
                  "differences to find: {\"configurations\":{\"name\":relative speed,...}}, of a "
                  "recorded sweep's candidates on top of its own; also \"failures\" and "
                  "\"disturbed\" (shares of trials), \"noise\" (factors by name), \"objectives\"")
      ->needs(replay)
      ->check(CLI::ExistingFile)
      ->group(group);
  command.add_option("--seeds", seeds, "replays, each with its own offset (default 1000)")
      ->needs(replay)
      ->check(CLI::Range(1, 1'000'000))
      ->group(group);
}

Status RunReplayCommand(const ReplayFlags& flags, Definition definition, double budget_s,
                        bool json) {
  ReplayOptions options;
  options.definition = std::move(definition);
  options.definition.budget_s = budget_s;
  if (flags.seeds) options.seeds = *flags.seeds;
  ReplayReport report;
  if (flags.file.ends_with(".db")) {
    const auto objective = flags.metric.empty() ? std::nullopt : std::optional(flags.metric);
    PINION_ASSIGN(const RecordedSweep recorded, ReadRecordedSweep(flags.file, objective));
    PINION_ASSIGN(const Planted planted, PlantedOn(recorded, flags.planted));
    PINION_ASSIGN(report, ReplaySweep(recorded, planted, options));
  } else {
    if (flags.metric.empty() || flags.planted.empty())
      return Fail(ErrorCode::kUsage, StrCat("a replay of the series ", flags.file,
                                            " needs --metric COLUMN and --planted effects.json"));
    PINION_ASSIGN(const Json effects, ReadGivenJson(flags.planted));
    auto planted = ParsePlanted(effects);
    if (!planted) return Unexpected(std::move(planted).error().In(flags.planted));
    PINION_ASSIGN(const Recording recording, ReadRecording(flags.file, flags.metric));
    PINION_ASSIGN(report, ReplayPlanted(recording, *planted, options));
  }
  std::cout << (json ? ToJson(report).Dump(2) + "\n" : Render(report)) << std::flush;
  return {};
}

}  // namespace pinion::harness
