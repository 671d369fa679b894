#include "harness/cli/given_file.h"

#include <filesystem>
#include <utility>

#include "engine/base/strings.h"

namespace pinion::harness {

Result<Json> ReadGivenJson(const std::string& path) {
  auto json = Json::ParseFile(path);
  if (json) return json;
  return Fail(ErrorCode::kUsage, std::move(json).error().message);
}

Result<std::string> GivenSweep(const std::string& path) {
  const std::filesystem::path given(path);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(given, ignored)) return path;
  if (given.filename() != "results.db")
    return Fail(ErrorCode::kUsage,
                StrCat(path, " is not a sweep; give the folder that `pinion sweep` ",
                       "wrote, or its results.db"));
  return given.has_parent_path() ? given.parent_path().string() : std::string(".");
}

}  // namespace pinion::harness
