#include "engine/calibrate/norm_division.h"

#include <algorithm>
#include <cmath>

#include "kernels/kernels.h"

namespace pinion {
namespace {

using kernels::Dtype;

float NearerToOne(float factor) {
  return factor > 1 ? std::max(1.0f, factor / 2) : std::min(1.0f, factor * 2);
}

}  // namespace

std::vector<std::byte> DivideNorm(Dtype dtype, float offset, const std::vector<float>& values,
                                  std::vector<float>& factors) {
  std::vector<std::byte> stored(values.size() * kernels::SizeOf(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    std::byte* to = stored.data() + i * kernels::SizeOf(dtype);
    const float whole = values[i] + offset;
    const auto divide = [&] {
      float part = whole / factors[i] - offset;
      auto* bytes = reinterpret_cast<std::byte*>(&part);
      kernels::Convert(to, dtype, bytes, Dtype::kF32, 1);
      kernels::Convert(bytes, Dtype::kF32, to, dtype, 1);
      return part + offset;
    };
    float kept = divide();
    while (whole != 0 && (kept == 0 || !std::isfinite(kept)) && factors[i] != 1) {
      factors[i] = NearerToOne(factors[i]);
      kept = divide();
    }
    factors[i] = kept == 0 ? 1 : whole / kept;
  }
  return stored;
}

}  // namespace pinion
