#pragma once

#include "kernels/integer.h"

namespace pinion::kernels::impl {

extern const IntTable kIntScalar, kIntAvx2, kIntAvx2Vnni, kIntAvx512, kIntAvx512Vnni, kIntAmx;

}  // namespace pinion::kernels::impl
