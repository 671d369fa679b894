// libFuzzer's entry. FUZZ_FUNCTION: the function of fuzz.h that this binary runs.

#include <cstddef>
#include <cstdint>

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {  // NOLINT: its name
  pinion::fuzz::FUZZ_FUNCTION({reinterpret_cast<const char*>(data), size});
  return 0;
}
