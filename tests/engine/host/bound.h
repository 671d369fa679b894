#pragma once

#include <numaif.h>

namespace pinion::testing {

// Whether the kernel keeps the page at `data` on the nodes of a strict policy.
inline bool IsBound(const void* data) {
  int mode = -1;
  return get_mempolicy(&mode, nullptr, 0, const_cast<void*>(data), MPOL_F_ADDR) == 0 &&
         mode == MPOL_BIND;
}

}  // namespace pinion::testing
