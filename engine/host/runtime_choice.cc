#include "engine/host/runtime_choice.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

struct Library {
  const char *value, *file, *package;
};
constexpr Library kLibraries[] = {
    {"tcmalloc", "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"},
    {"libomp", "libomp.so.5", "libomp5-14"},
    {"libiomp5", "libiomp5.so", "intel-oneapi-openmp (from Intel's repository)"},
};

Status CheckValues(const RuntimeChoice& choice) {
  for (const RuntimeSetting& setting : RuntimeSettings()) {
    const std::string& value = choice.*setting.member;
    if (std::find(setting.values.begin(), setting.values.end(), value) != setting.values.end())
      continue;
    return Fail(ErrorCode::kUsage, StrCat(setting.key, " '", value, "' is unknown; use one of ",
                                          Join(setting.values, ", ")));
  }
  return {};
}

Result<std::string> PathOf(const Library& library, const RuntimeOffer& offer) {
  for (const std::string& folder : offer.library_folders) {
    const std::string path = StrCat(folder, "/", library.file);
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return Fail(ErrorCode::kUnsupported,
              StrCat(library.value, " is unavailable: ", library.file, " is in none of ",
                     Join(offer.library_folders, ", "), "; install ", library.package));
}

}  // namespace

const std::vector<RuntimeSetting>& RuntimeSettings() {
  static const std::vector<RuntimeSetting> settings = {
      {"allocator", &RuntimeChoice::allocator, {"system", "tcmalloc"}},
      {"openmp", &RuntimeChoice::openmp, {"system", "libomp", "libiomp5"}},
      {"huge_pages", &RuntimeChoice::huge_pages, {"on", "off"}},
  };
  return settings;
}

RuntimeOffer RuntimeOffer::Here() {
  RuntimeOffer offer;
  offer.library_folders = {"/usr/lib/x86_64-linux-gnu",
                           "/usr/lib/llvm-14/lib",
                           "/usr/lib64",
                           "/usr/lib",
                           "/usr/local/lib",
                           "/opt/intel/oneapi/compiler/latest/lib"};
  offer.huge_pages = ReadFile("/sys/kernel/mm/transparent_hugepage/enabled", 1 << 10).value_or("");
  if (const char* preload = std::getenv("LD_PRELOAD")) offer.preload = preload;
  return offer;
}

std::vector<std::string> PreloadedFiles(const RuntimeChoice& choice, const RuntimeOffer& offer) {
  std::vector<std::string> files;
  for (const std::string& value : {choice.allocator, choice.openmp})
    for (const Library& library : kLibraries)
      if (value == library.value) files.push_back(PathOf(library, offer).value_or(library.file));
  return files;
}

std::string WithoutChosenLibraries(const std::string& preload) {
  std::vector<std::string> kept;
  for (const std::string& path : Split(preload, ':')) {
    const std::string file = path.substr(path.rfind('/') + 1);
    const bool chosen = std::any_of(std::begin(kLibraries), std::end(kLibraries),
                                    [&](const Library& library) { return file == library.file; });
    if (!chosen && !path.empty()) kept.push_back(path);
  }
  return Join(kept, ":");
}

Result<std::vector<std::pair<std::string, std::string>>> EnvironmentOf(const RuntimeChoice& choice,
                                                                       const RuntimeOffer& offer) {
  PINION_TRY(CheckValues(choice));
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> preload;
  if (!offer.preload.empty()) preload.push_back(offer.preload);
  const size_t before = preload.size();
  for (const std::string& value : {choice.allocator, choice.openmp})
    for (const Library& library : kLibraries)
      if (value == library.value) {
        PINION_ASSIGN(std::string path, PathOf(library, offer));
        preload.push_back(std::move(path));
      }
  if (preload.size() > before) environment.emplace_back("LD_PRELOAD", Join(preload, ":"));
  if (choice.huge_pages == "on") return environment;
  const bool none =
      offer.huge_pages.empty() || offer.huge_pages.find("[never]") != std::string::npos;
  if (none)
    return Fail(ErrorCode::kUnsupported,
                "huge_pages=off has no effect here: the kernel provides no transparent huge pages "
                "(/sys/kernel/mm/transparent_hugepage/enabled)");
  environment.emplace_back(kHugePagesVariable, "0");
  return environment;
}

}  // namespace pinion
