#pragma once

#include <string>

namespace pinion {

// Libraries of this process that a preload may have replaced, and that speed depends on.
struct Runtime {
  std::string
      allocator;       // file name of a preloaded malloc ("libtcmalloc_minimal.so.4"), or "glibc"
  std::string openmp;  // "libgomp.so.1", "libomp.so.5", ...; where two are loaded, the first
};
Runtime LoadedRuntime();

}  // namespace pinion
