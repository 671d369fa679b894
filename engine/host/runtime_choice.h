#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/base/result.h"

namespace pinion {

// What a process is started with beside its arguments, all of it by the environment: libraries that
// replace others by being preloaded, and whether memory is asked for in huge pages.
struct RuntimeChoice {
  std::string allocator = "system";  // as linked; or "tcmalloc"
  std::string openmp = "system";     // as linked, libgomp; or "libomp", "libiomp5"
  std::string huge_pages = "on";  // transparent ones are asked for (engine/host/memory); or "off"

  bool operator==(const RuntimeChoice&) const = default;
};

// The settings by name and what each may be, the default first.
struct RuntimeSetting {
  const char* key;
  std::string RuntimeChoice::*member;
  std::vector<std::string> values;
};
const std::vector<RuntimeSetting>& RuntimeSettings();

// What this system can give: where libraries lie, and the kernel's word on huge pages
// (/sys/kernel/mm/transparent_hugepage/enabled; empty: it has none).
struct RuntimeOffer {
  std::vector<std::string> library_folders;
  std::string huge_pages;
  std::string preload;  // LD_PRELOAD as it is: kept, and added to

  static RuntimeOffer Here();
};

// The environment variables that make the choice; none for the default. Errors: kUsage for a value
// that is none of the allowed, kUnsupported for what is not to be had here, with the way to it.
Result<std::vector<std::pair<std::string, std::string>>> EnvironmentOf(const RuntimeChoice& choice,
                                                                       const RuntimeOffer& offer);

// Read by engine/host/memory: "0" leaves huge pages out.
inline constexpr char kHugePagesVariable[] = "PINION_HUGE_PAGES";

}  // namespace pinion
