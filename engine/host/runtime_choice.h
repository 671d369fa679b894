#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/base/result.h"

namespace pinion {

// Settings of a process that are made through its environment: preloaded libraries that replace the
// linked ones, and whether to request huge pages.
struct RuntimeChoice {
  std::string allocator = "system";  // as linked; or "tcmalloc"
  std::string openmp = "system";     // as linked, libgomp; or "libomp", "libiomp5"
  std::string huge_pages = "on";     // transparent, requested by engine/host/memory; or "off"

  bool operator==(const RuntimeChoice&) const = default;
};

// The settings by name with their allowed values, the default first.
struct RuntimeSetting {
  const char* key;
  std::string RuntimeChoice::*member;
  std::vector<std::string> values;
};
const std::vector<RuntimeSetting>& RuntimeSettings();

// The offer of this system: folders to search for libraries, and the kernel's setting for huge
// pages
// (/sys/kernel/mm/transparent_hugepage/enabled; empty: not supported).
struct RuntimeOffer {
  std::vector<std::string> library_folders;
  std::string huge_pages;
  std::string preload;  // the current LD_PRELOAD; kept and extended

  static RuntimeOffer Here();
};

// The environment variables that make the choice; none for the default. Errors: kUsage for a value
// that is not allowed, kUnsupported for one unavailable here (the error says how to get it).
Result<std::vector<std::pair<std::string, std::string>>> EnvironmentOf(const RuntimeChoice& choice,
                                                                       const RuntimeOffer& offer);

// The files that the choice preloads, for a command that is shown: by their paths if they are here,
// else by their names, which the loader looks for itself. Empty for the default.
std::vector<std::string> PreloadedFiles(const RuntimeChoice& choice, const RuntimeOffer& offer);

// A value of LD_PRELOAD without the libraries that a choice may have added to it.
std::string WithoutChosenLibraries(const std::string& preload);

// Read by engine/host/memory: "0" disables huge pages.
inline constexpr char kHugePagesVariable[] = "PINION_HUGE_PAGES";

}  // namespace pinion
