#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "engine/base/file.h"
#include "harness/cli/commands.h"
#include "harness/cli/given_file.h"
#include "harness/cli/slo_flag.h"
#include "harness/report/side_by_side.h"
#include "harness/report/write.h"
#include "harness/sweep/gather.h"
#include "harness/sweep/load.h"

namespace pinion::harness {
namespace {

struct ReportOptions {
  std::string folder, other, format, out;
  std::vector<std::string> gathered, slo;
  bool json = false;
};

// Writes both sweeps side by side; without a format, as a page in the first sweep's folder.
Status RunSideBySide(const ReportOptions& options, const Results& results,
                     const std::string& format) {
  PINION_ASSIGN(const std::string folder, GivenSweep(options.other));
  PINION_ASSIGN(const Results other, LoadResults(folder));
  constexpr double kThreshold = 0.02;  // the default of `pinion compare`
  PINION_ASSIGN(const RunComparison comparison, CompareAnyway(options.folder, folder, kThreshold));
  PINION_ASSIGN(const std::string text,
                SideText(results, other, comparison, format.empty() ? "html" : format));
  if (!format.empty()) {
    std::cout << text << std::flush;
    return {};
  }
  const std::string path = options.folder + "/comparison.html";
  PINION_TRY(WriteFile(path, text));
  std::cout << path << "\n" << std::flush;
  return {};
}

// The folder beside the first sweep's.
std::string GatheredFolder(const std::string& first) {
  const auto path = std::filesystem::path(first).lexically_normal();
  return ((path.has_filename() ? path : path.parent_path()).parent_path() / "gathered").string();
}

Result<std::string> FolderOf(const ReportOptions& options) {
  if (options.gathered.empty() == options.folder.empty())
    return Fail(ErrorCode::kUsage,
                options.folder.empty()
                    ? "report takes the folder of a sweep, or --gather those of several"
                    : "report takes DIR or --gather, not both");
  if (options.gathered.empty()) return GivenSweep(options.folder);
  std::vector<std::string> folders;
  for (const std::string& path : options.gathered) {
    PINION_ASSIGN(std::string folder, GivenSweep(path));
    folders.push_back(std::move(folder));
  }
  const std::string into = options.out.empty() ? GatheredFolder(folders.front()) : options.out;
  PINION_TRY(Gather(folders, into));
  return into;
}

Status RunReport(ReportOptions options) {
  PINION_ASSIGN(options.folder, FolderOf(options));
  std::optional<Json> slo;
  if (!options.slo.empty()) {
    PINION_ASSIGN(slo, ReadSloFlag(options.slo));
  }
  PINION_ASSIGN(const Results results, LoadResults(options.folder, slo));
  const std::string format = options.json ? "json" : options.format;
  if (!options.other.empty()) return RunSideBySide(options, results, format);
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

// `pinion report`: writes a sweep's outputs again from its store.
void AddReport(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ReportOptions>();
  auto* command = app.add_subcommand(
      "report", "Write the report, tables and profiles of a sweep, finished or still running");
  command->add_option("DIR", options->folder,
                      "the folder that `pinion sweep` wrote, or its results.db");
  auto* gather = command->add_option(
      "--gather", options->gathered,
      "folders of sweeps with one definition on several nodes of one kind: join their stores and "
      "report on all of them; comparisons stay within a node");
  command
      ->add_option("--out", options->out,
                   "with --gather: the folder to write (default: gathered, beside the first)")
      ->needs(gather);
  command
      ->add_option("--format", options->format,
                   "print one of html, md, json, csv on standard output and write nothing")
      ->check(CLI::IsMember({"html", "md", "json", "csv"}));
  command->add_flag("--json", options->json, "short for --format json")->excludes("--format");
  auto* compare = command->add_option("--compare", options->other,
                                      "folder of another sweep: compare the two side by side, as "
                                      "DIR/comparison.html or in a format of html, md, json");
  command
      ->add_option("--slo", options->slo,
                   "judge every request by these limits instead of the sweep's, such as "
                   "ttft=500ms,tpot=50ms: goodput and the load that meets them")
      ->delimiter(',')
      ->excludes(compare);
  command->callback([options, &exit_code] { exit_code = ExitCodeOf(RunReport(*options)); });
}

}  // namespace pinion::harness
