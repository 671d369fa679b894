#include "harness/report/page_parts.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/process.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

namespace fs = std::filesystem;

// Files of `folder` that end in `suffix`, by name.
std::vector<fs::path> FilesOf(const fs::path& folder, std::string_view suffix) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().filename().string().ends_with(suffix)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

Result<std::string> ReadScript(const fs::path& path) {
  PINION_ASSIGN(std::string script, ReadFile(path.string()));
  if (script.find("</script") != std::string::npos)
    return Fail(
        ErrorCode::kUnsupported,
        StrCat(path.string(), " contains '</script', which would end the page's script; use ",
               "the version in reports/package-lock.json"));
  return script + "\n";
}

Status ReadLibraries(const fs::path& folder, PageParts& parts) {
  if (!fs::exists(folder / "vega.min.js")) return {};
  for (const char* library : {"vega", "vega-lite", "vega-embed"}) {
    PINION_ASSIGN(const std::string script, ReadScript(folder / StrCat(library, ".min.js")));
    parts.libraries += script;
  }
  PINION_ASSIGN(parts.licence, ReadFile((folder / "LICENSE").string()));
  return {};
}

}  // namespace

Result<PageParts> ReadPageParts(const std::string& folder) {
  PageParts parts;
  parts.folder = folder;
  PINION_ASSIGN(const std::string head, ReadFile(folder + "/head.html"));
  PINION_ASSIGN(parts.page, ReadFile(folder + "/template.html"));
  PINION_ASSIGN(parts.comparison, ReadFile(folder + "/comparison.html"));
  for (std::string* page : {&parts.page, &parts.comparison}) page->insert(0, head);
  PINION_ASSIGN(parts.styles, ReadFile(folder + "/page.css"));
  for (const fs::path& file : FilesOf(fs::path(folder) / "page", ".js")) {
    PINION_ASSIGN(const std::string script, ReadScript(file));
    parts.behaviour += script;
  }
  constexpr std::string_view kSpec = ".vl.json";
  for (const fs::path& file : FilesOf(fs::path(folder) / "charts", kSpec)) {
    const std::string name = file.filename().string();
    PINION_ASSIGN(parts.specs[name.substr(0, name.size() - kSpec.size())],
                  Json::ParseFile(file.string()));
  }
  PINION_TRY(ReadLibraries(folder, parts));
  return parts;
}

std::string PagePolicy(bool live) {
  return StrCat(
      "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
      "img-src data:",
      live ? "; connect-src 'self'" : "");
}

Result<std::string> FindPageParts() {
  const auto here = fs::path(SelfPath()).parent_path();
  std::vector<std::string> looked;
  for (const auto& place : {here / "reports", here.parent_path() / "share/pinion/reports"}) {
    std::error_code ignored;
    if (fs::exists(place / "template.html", ignored)) return place.string();
    looked.push_back(place.string());
  }
  return Fail(ErrorCode::kNotFound,
              StrCat("report.html needs its template and chart libraries, but they are in neither ",
                     Join(looked, " nor "), "; scripts/build makes them"));
}

}  // namespace pinion::harness
