#include <cstdio>
#include <memory>

#include "engine/base/strings.h"
#include "harness/cli/commands.h"
#include "harness/report/export.h"
#include "harness/report/write.h"
#include "harness/sweep/load.h"

namespace pinion::harness {
namespace {

struct ReportOptions {
  std::string folder;
  bool json = false;
};

Status RunReport(const ReportOptions& options) {
  PINION_ASSIGN(const Results results, LoadResults(options.folder));
  PINION_TRY(WriteOutputs(results, options.folder));
  if (options.json) {
    std::printf("%s\n", ResultsJson(results, options.folder).Dump(2).c_str());
  } else {
    std::printf("%s/report.html\n", options.folder.c_str());
  }
  return {};
}

}  // namespace

// `pinion report`: a sweep's outputs, written again from its store.
void AddReport(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ReportOptions>();
  auto* command = app.add_subcommand(
      "report", "Write report, tables and profiles of a sweep again, finished or still running");
  command->add_option("DIR", options->folder, "the folder that `pinion sweep` wrote")->required();
  command->add_flag("--json", options->json, "print results.json on standard output");
  command->callback([options, &exit_code] {
    const Status done = RunReport(*options);
    exit_code = done ? 0 : Report(done.error());
  });
}

}  // namespace pinion::harness
