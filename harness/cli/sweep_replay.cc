#include "harness/cli/sweep_replay.h"

#include <iostream>

#include "engine/base/strings.h"
#include "harness/sweep/recording.h"
#include "harness/sweep/replay.h"

namespace pinion::harness {

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
                  "with a series: {\"configurations\":{\"name\":relative speed,...}}")
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
    if (!flags.planted.empty())
      return Fail(ErrorCode::kUsage,
                  "--planted needs a CSV series: a recorded sweep has its own differences");
    const auto objective = flags.metric.empty() ? std::nullopt : std::optional(flags.metric);
    PINION_ASSIGN(const RecordedSweep recorded, ReadRecordedSweep(flags.file, objective));
    PINION_ASSIGN(report, ReplaySweep(recorded, options));
  } else {
    if (flags.metric.empty() || flags.planted.empty())
      return Fail(ErrorCode::kUsage, StrCat("a replay of the series ", flags.file,
                                            " needs --metric COLUMN and --planted effects.json"));
    PINION_ASSIGN(const Json effects, Json::ParseFile(flags.planted));
    auto planted = ParsePlanted(effects);
    if (!planted) return Unexpected(std::move(planted).error().In(flags.planted));
    PINION_ASSIGN(const Recording recording, ReadRecording(flags.file, flags.metric));
    PINION_ASSIGN(report, ReplayPlanted(recording, *planted, options));
  }
  std::cout << (json ? ToJson(report).Dump(2) + "\n" : Render(report)) << std::flush;
  return {};
}

}  // namespace pinion::harness
