#pragma once

#include <string>

namespace pinion {

// Libraries of this process that affect its speed and can be replaced by preloading.
struct Runtime {
  std::string
      allocator;       // file name of a preloaded malloc ("libtcmalloc_minimal.so.4"), or "glibc"
  std::string openmp;  // "libgomp.so.1", "libomp.so.5", ...; the first if two are loaded
};
Runtime LoadedRuntime();

}  // namespace pinion
