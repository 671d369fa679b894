// `pinion compare`: is B worse than A? Two builds or two profiles race now, or two old sweeps are
// held against each other. Exit 0 no, 3 yes, 1 failed, 2 bad usage or sweeps that cannot be
// compared.

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "harness/cli/commands.h"
#include "harness/cli/compare_race.h"
#include "harness/compare/compare.h"

namespace pinion::harness {
namespace {

constexpr int kWorse = 3;
constexpr char kAskedOfARace[] = "builds or profiles only: ";

struct CompareFlags {
  std::vector<std::string> names;  // A and B, or with builds the model
  CompareRaceFlags race;
  double threshold_percent = 2;
  bool json = false;
  bool asks_for_race = false;  // a flag that only a race has
};

bool AreProfiles(const std::vector<std::string>& names) {
  return std::all_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.ends_with(".json"); });
}

Result<int> RunRace(const CompareFlags& flags) {
  CompareRaceFlags asked = flags.race;
  asked.threshold = flags.threshold_percent / 100;
  asked.json = flags.json;
  PINION_ASSIGN(const bool worse, CompareRace(asked));
  return worse ? kWorse : 0;
}

Result<int> RunBuilds(CompareFlags flags) {
  if (flags.race.builds.size() != 2 || flags.names.size() != 1)
    return Fail(ErrorCode::kUsage,
                "a comparison of builds needs two of them and a model: pinion compare --build "
                "old/pinion --build new/pinion MODEL");
  flags.race.model = flags.names.front();
  return RunRace(flags);
}

Result<int> RunSweeps(const CompareFlags& flags) {
  if (flags.asks_for_race)
    return Fail(ErrorCode::kUsage,
                "two old sweeps are only read: --budget, --rounds, --objective and --out are "
                "for a race, of builds (--build) or of profiles (A.json B.json)");
  const auto comparison = Compare(flags.names[0], flags.names[1], flags.threshold_percent / 100);
  if (!comparison) return Fail(ErrorCode::kUsage, comparison.error().message);
  std::cout << (flags.json ? ToJson(*comparison).Dump(2) + "\n" : Render(*comparison))
            << std::flush;
  if (!std::cout) return Fail(ErrorCode::kIo, "cannot write to standard output");
  return comparison->any_worse() ? kWorse : 0;
}

Result<int> RunCompare(CompareFlags flags) {
  if (!flags.race.builds.empty()) return RunBuilds(flags);
  if (flags.names.size() != 2)
    return Fail(ErrorCode::kUsage,
                "give two sweeps' folders, two profiles (A.json B.json), or two builds: --build "
                "A --build B MODEL");
  if (!AreProfiles(flags.names)) return RunSweeps(flags);
  flags.race.profiles = flags.names;
  return RunRace(flags);
}

void AddRaceFlags(CLI::App& command, CompareFlags& flags) {
  CompareRaceFlags& race = flags.race;
  command
      .add_option("--build", race.builds,
                  "the pinion program of a build; give it twice, A first: both run now, in turn "
                  "and on the same prompts")
      ->allow_extra_args(false);
  const auto asks = [&](const std::string&) { flags.asks_for_race = true; };
  const auto help = [](const char* text) { return std::string(kAskedOfARace) + text; };
  command.add_option("--budget", race.budget, help("time for all trials"))
      ->each(asks)
      ->capture_default_str();
  command
      .add_option("--rounds", race.rounds,
                  help("at most so many rounds, each of which runs both once, in random order; "
                       "fewer than 8 give no verdict (default: as many as the budget allows)"))
      ->each(asks)
      ->check(CLI::Range(1, kMaxRounds));
  command
      .add_option("--objective", race.objective,
                  help("throughput, latency, balanced, or a latency under load such as itl_p95@8 "
                       "(default: that of A's profile, else throughput)"))
      ->each(asks);
  command
      .add_option("--out", race.out,
                  help("folder for the trials and their report (default out/compare-TIME)"))
      ->each(asks);
}

}  // namespace

void AddCompare(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<CompareFlags>();
  auto* command = app.add_subcommand(
      "compare", "Is B worse than A? Two builds, two profiles, or two old sweeps");
  command
      ->add_option("A_B", flags->names,
                   "A first: two profiles (files .json), which run now, in turn and on the same "
                   "prompts; or folders of two old sweeps, or their results.db files; with --build "
                   "the model: a folder, preset:NAME, org/name")
      ->type_name("A B | MODEL")
      ->expected(1, 2);
  AddRaceFlags(*command, *flags);
  command
      ->add_option("--threshold", flags->threshold_percent,
                   "smallest difference that counts [%], if it is more than noise makes")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "print JSON instead of text");
  command->footer(
      "  pinion compare --build old/pinion --build new/pinion preset:qwen2.5-0.5b --budget 10m\n"
      "  pinion compare out/qwen/profiles/throughput.json mine.json\n"
      "  pinion compare out/monday out/friday     # two sittings: drift between them counts, too\n"
      "Exit code: 0 nothing is worse, 3 something is worse, 1 failed, 2 the sweeps cannot be "
      "compared.\n");
  command->callback([flags, &exit_code] { exit_code = ExitCodeOf(RunCompare(*flags)); });
}

}  // namespace pinion::harness
