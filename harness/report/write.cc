#include "harness/report/write.h"

#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/report/export.h"
#include "harness/report/markdown.h"
#include "harness/report/page.h"
#include "harness/report/pictures.h"
#include "harness/report/profile_files.h"
#include "harness/report/recommend.h"

namespace pinion::harness {
namespace {

// Writes one profile per objective that has a verdict, with the files made from it, and removes
// those of an earlier state of the sweep.
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
    PINION_TRY(WriteProfileFiles(profile ? &*profile : nullptr, Name(objective), folder));
  }
  return {};
}

using Pictures = Result<std::map<std::string, std::string>>;

Status WritePictures(const std::map<std::string, std::string>& pictures,
                     const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder + "/charts", error);
  if (error) return Fail(ErrorCode::kIo, StrCat("creating ", folder, "/charts: ", error.message()));
  for (const auto& [name, svg] : pictures)
    PINION_TRY(WriteFile(StrCat(folder, "/charts/", name, ".svg"), svg));
  return {};
}

}  // namespace

Result<std::string> ReportText(const Results& results, const std::string& folder,
                               const std::string& format) {
  if (format == "json") return ResultsJson(results, folder).Dump(2) + "\n";
  if (format == "csv") return ResultsCsv(results);
  if (format == "md")
    return ReportMarkdown(results, folder, Fail(ErrorCode::kUnsupported, "this is the text only"));
  if (format != "html")
    return Fail(ErrorCode::kUsage,
                StrCat("no format '", format, "', want one of html, md, json, csv"));
  PINION_ASSIGN(const std::string place, FindPageParts());
  PINION_ASSIGN(const PageParts parts, ReadPageParts(place));
  return ReportPage(results, folder, parts);
}

Status WriteOutputs(const Results& results, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder + "/profiles", error);
  if (error)
    return Fail(ErrorCode::kIo, StrCat("creating ", folder, "/profiles: ", error.message()));
  PINION_TRY(WriteFile(folder + "/results.json", ResultsJson(results, folder).Dump(1) + "\n"));
  PINION_TRY(WriteFile(folder + "/results.csv", ResultsCsv(results)));
  PINION_TRY(WriteProfiles(results, folder));
  // Last, because the page needs files from the build that may be missing.
  PINION_ASSIGN(const std::string place, FindPageParts());
  PINION_ASSIGN(const PageParts parts, ReadPageParts(place));
  PINION_ASSIGN(const std::string page, ReportPage(results, folder, parts));
  PINION_TRY(WriteFile(folder + "/report.html", page));
  const Pictures pictures = RenderPictures(results, parts);
  if (pictures) PINION_TRY(WritePictures(*pictures, folder));
  return WriteFile(folder + "/report.md", ReportMarkdown(results, folder, pictures));
}

}  // namespace pinion::harness
