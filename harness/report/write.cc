#include "harness/report/write.h"

#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/report/export.h"
#include "harness/report/markdown.h"
#include "harness/report/page.h"
#include "harness/report/recommend.h"

namespace pinion::harness {
namespace {

// One file per objective that has a verdict; what an earlier state of the sweep left is removed.
Status WriteProfiles(const Results& results, const std::string& folder) {
  for (const Objective objective : results.definition.objectives) {
    const std::string path = folder + "/" + ProfileFile(Name(objective));
    PINION_ASSIGN(const auto profile, ProfileOf(results, objective, folder));
    if (profile) {
      PINION_TRY(WriteFile(path, ToJson(*profile).Dump(2) + "\n"));
    } else {
      std::error_code ignored;
      std::filesystem::remove(path, ignored);
    }
  }
  return {};
}

Status WritePage(const Results& results, const std::string& folder) {
  PINION_ASSIGN(const std::string place, FindPageParts());
  PINION_ASSIGN(const PageParts parts, ReadPageParts(place));
  PINION_ASSIGN(const std::string page, ReportPage(results, folder, parts));
  return WriteFile(folder + "/report.html", page);
}

}  // namespace

Status WriteOutputs(const Results& results, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder + "/profiles", error);
  if (error)
    return Fail(ErrorCode::kIo, StrCat("creating ", folder, "/profiles: ", error.message()));
  PINION_TRY(WriteFile(folder + "/results.json", ResultsJson(results, folder).Dump(1) + "\n"));
  PINION_TRY(WriteFile(folder + "/results.csv", ResultsCsv(results)));
  PINION_TRY(WriteFile(folder + "/report.md", ReportMarkdown(results, folder)));
  PINION_TRY(WriteProfiles(results, folder));
  return WritePage(results, folder);  // last: it alone needs files from the build
}

}  // namespace pinion::harness
