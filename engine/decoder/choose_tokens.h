#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pinion {

// Writes the indices of the `k` largest scores to dst, ascending; of equal scores the lower index
// wins, and NaN loses against everything, so that all ranks choose alike. k <= n. scratch: buffer
// that grows, of one thread.
void ChooseTokens(const float* scores, size_t n, size_t k, int32_t* dst,
                  std::vector<float>& scratch);

}  // namespace pinion
