#pragma once

#include "kernels/integer.h"

namespace pinion::kernels::impl {

extern const IntTable kIntScalar, kIntAvx2, kIntAvx512, kIntAvx512Vnni;

}  // namespace pinion::kernels::impl
