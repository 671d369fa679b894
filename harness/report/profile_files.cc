#include "harness/report/profile_files.h"

#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/artifacts/artifacts.h"
#include "harness/report/recommend.h"

namespace pinion::harness {
namespace {

// "profiles/throughput"
std::string FolderOfFiles(const std::string& objective) {
  return std::filesystem::path(ProfileFile(objective)).replace_extension().string();
}

Status WriteInto(const std::filesystem::path& path, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error)
    return Fail(ErrorCode::kIo,
                StrCat("creating ", path.parent_path().string(), ": ", error.message()));
  return WriteFile(path.string(), text);
}

}  // namespace

std::vector<ProfileFileLine> ProfileFileLines(const Results& results, const Verdict& verdict,
                                              const std::string& folder) {
  std::vector<ProfileFileLine> lines;
  const auto profile = ProfileOf(results, results.ObjectiveOf(verdict), folder);
  if (!profile || !*profile) return lines;
  for (const MadeArtifact& made : MakeArtifacts(**profile)) {
    if (made.text)
      lines.push_back({StrCat(FolderOfFiles(verdict.objective), "/", made.file), made.file,
                       made.artifact->what});
    else
      lines.push_back({"", made.artifact->kind, made.text.error().message});
  }
  return lines;
}

Status WriteProfileFiles(const Profile* profile, const std::string& objective,
                         const std::string& folder) {
  const auto place = std::filesystem::path(folder) / FolderOfFiles(objective);
  std::error_code ignored;
  std::filesystem::remove_all(place / "models", ignored);  // of a recipe, whose path may be another
  if (!profile) {
    for (const Artifact& artifact : Artifacts())
      if (*artifact.file) std::filesystem::remove(place / artifact.file, ignored);
    return {};
  }
  for (const MadeArtifact& made : MakeArtifacts(*profile)) {
    if (made.text)
      PINION_TRY(WriteInto(place / made.file, *made.text));
    else if (!made.file.empty())
      std::filesystem::remove(place / made.file, ignored);
  }
  return {};
}

}  // namespace pinion::harness
