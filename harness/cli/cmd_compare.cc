// `pinion compare`: checks two sweeps for regressions. Exit 0 none, 1 some metric is worse, 2 the
// runs cannot be compared.

#include <iostream>
#include <memory>

#include "harness/cli/commands.h"
#include "harness/compare/compare.h"

namespace pinion::harness {
namespace {

struct CompareFlags {
  std::string a, b;
  double threshold_percent = 2;
  bool json = false;
};

int RunCompare(const CompareFlags& flags) {
  const auto comparison = Compare(flags.a, flags.b, flags.threshold_percent / 100);
  if (!comparison) {
    (void)Report(comparison.error());
    return 2;  // 1 would mean that a metric is worse
  }
  std::cout << (flags.json ? ToJson(*comparison).Dump(2) + "\n" : Render(*comparison))
            << std::flush;
  if (!std::cout) return Report({ErrorCode::kIo, "cannot write to standard output"});
  return comparison->any_worse() ? 1 : 0;
}

}  // namespace

void AddCompare(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<CompareFlags>();
  auto* command = app.add_subcommand("compare", "Compare two sweeps: is B worse than A?");
  command->add_option("A", flags->a, "folder of a sweep, or its results.db")->required();
  command->add_option("B", flags->b, "the sweep to judge, in the same form")->required();
  command
      ->add_option("--threshold", flags->threshold_percent,
                   "smallest difference that counts [%]; at least what can be resolved")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "print JSON instead of text");
  command->footer(
      "Exit code: 0 nothing is worse, 1 something is worse, 2 the runs cannot be compared.\n");
  command->callback([flags, &exit_code] { exit_code = RunCompare(*flags); });
}

}  // namespace pinion::harness
