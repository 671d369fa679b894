#pragma once

#include <cstddef>
#include <vector>

namespace pinion {

// Floats that begin on a cache line, as the kernels want their operands.
class AlignedFloats {
 public:
  AlignedFloats() = default;
  explicit AlignedFloats(size_t count) { Resize(count); }
  void Resize(size_t count) { lines_.assign((count + kInLine - 1) / kInLine, Line{}); }  // to zeros

  float* data() { return reinterpret_cast<float*>(lines_.data()); }
  const float* data() const { return reinterpret_cast<const float*>(lines_.data()); }
  std::byte* bytes() { return reinterpret_cast<std::byte*>(lines_.data()); }
  const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(lines_.data()); }
  bool empty() const { return lines_.empty(); }

 private:
  static constexpr size_t kInLine = 16;
  struct alignas(64) Line {
    float values[kInLine] = {};
  };
  std::vector<Line> lines_;
};

}  // namespace pinion
