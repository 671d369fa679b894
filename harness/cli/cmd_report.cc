#include <iostream>
#include <memory>

#include "engine/base/strings.h"
#include "harness/cli/commands.h"
#include "harness/report/write.h"
#include "harness/sweep/load.h"

namespace pinion::harness {
namespace {

struct ReportOptions {
  std::string folder, format;
  bool json = false;
};

Status RunReport(const ReportOptions& options) {
  PINION_ASSIGN(const Results results, LoadResults(options.folder));
  const std::string format = options.json ? "json" : options.format;
  if (!format.empty()) {
    PINION_ASSIGN(const std::string text, ReportText(results, options.folder, format));
    std::cout << text << std::flush;
    return {};
  }
  PINION_TRY(WriteOutputs(results, options.folder));
  std::cout << options.folder << "/report.html\n" << std::flush;
  return {};
}

}  // namespace

// `pinion report`: a sweep's outputs, written again from its store.
void AddReport(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ReportOptions>();
  auto* command = app.add_subcommand(
      "report", "Write report, tables and profiles of a sweep again, finished or still running");
  command->add_option("DIR", options->folder, "the folder that `pinion sweep` wrote")->required();
  command
      ->add_option("--format", options->format,
                   "print one of html, md, json, csv on standard output and write nothing")
      ->check(CLI::IsMember({"html", "md", "json", "csv"}));
  command->add_flag("--json", options->json, "short for --format json")->excludes("--format");
  command->callback([options, &exit_code] {
    const Status done = RunReport(*options);
    exit_code = done ? 0 : Report(done.error());
  });
}

}  // namespace pinion::harness
