#include "engine/checkpoint/hub.h"

#include <sys/stat.h>

#include <cstdlib>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool IsFolder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

constexpr std::string_view kNameCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

// A part of "org/name": what the hub allows, so that nothing can lead out of the cache.
bool IsHubName(std::string_view part) {
  return !part.empty() && part.find_first_not_of(kNameCharacters) == std::string_view::npos &&
         part.front() != '.' && part.find("..") == std::string_view::npos;
}

}  // namespace

std::string HubCache() {
  if (const std::string cache = Environment("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = Environment("HF_HOME"); !home.empty()) return home + "/hub";
  if (const std::string xdg = Environment("XDG_CACHE_HOME"); !xdg.empty())
    return xdg + "/huggingface/hub";
  return Environment("HOME") + "/.cache/huggingface/hub";
}

Result<std::string> FindInHub(const std::string& model) {
  const auto parts = Split(model, '/');
  if (parts.size() != 2 || !IsHubName(parts[0]) || !IsHubName(parts[1]))
    return Fail(ErrorCode::kNotFound,
                StrCat("'", model,
                       "' is neither a folder nor org/name; MODEL is a folder in Hugging Face's "
                       "layout, FILE.gguf, preset:NAME or org/name in the Hugging Face cache"));
  const std::string folder = StrCat(HubCache(), "/models--", parts[0], "--", parts[1]);
  const std::string way_out =
      StrCat("; download it with 'hf download ", model, "' or give its folder");
  if (!IsFolder(folder))
    return Fail(ErrorCode::kNotFound, StrCat("no model '", model,
                                             "' here and none in the Hugging Face "
                                             "cache (looked for ",
                                             folder, ")", way_out));
  const std::string reference = folder + "/refs/main";
  auto revision = ReadFile(reference, 4096);
  if (!revision)
    return Unexpected(std::move(revision).error().In(StrCat("the cached model '", model, "'")));
  const std::string name(Trim(*revision));
  if (!IsHubName(name))
    return Fail(ErrorCode::kCorrupt,
                StrCat(reference, " holds '", name.substr(0, 60), "', want a revision", way_out));
  const std::string snapshot = StrCat(folder, "/snapshots/", name);
  if (!IsFolder(snapshot))
    return Fail(ErrorCode::kNotFound, StrCat(reference, " names the snapshot ", snapshot,
                                             ", which is not there", way_out));
  return snapshot;
}

}  // namespace pinion
