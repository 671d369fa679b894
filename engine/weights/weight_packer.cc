#include "engine/weights/weight_packer.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/progress.h"

namespace pinion {

using kernels::Dtype;
using kernels::kBlockN;

namespace {

// Bytes of a file that each thread may keep resident: releasing them this often, every 2 ms of
// packing or so, costs little and keeps the checkpoint from filling memory beside the packed
// weights.
constexpr size_t kReleaseBytes = size_t{8} << 20;

}  // namespace

TensorInfo WeightPacker::Find(const std::string& name) const {
  auto found = source_.Find(name);
  CHECK(found) << found.error().message;
  return *std::move(found);
}

void WeightPacker::FillVector(float* dst, const std::string& name, Range range, float offset) {
  if (!dst || worker_.thread != 0 || range.size() == 0) return;
  const TensorInfo info = Find(name);
  const bool is_row = info.shape.size() > 1;  // [1][n], [1][1][n][1]
  const std::byte* src =
      is_row ? source_.Rows(info, 0, 1, scratch_) + range.begin * kernels::SizeOf(info.dtype)
             : source_.Rows(info, range.begin, range.size(), scratch_);
  kernels::Convert(reinterpret_cast<std::byte*>(dst), Dtype::kF32, src, info.dtype, range.size());
  if (offset != 0)
    for (size_t i = 0; i < range.size(); ++i) dst[i] += offset;
}

void WeightPacker::PackMatrix(const PackedMatrix& matrix, const std::vector<Segment>& segments,
                              size_t column, size_t unit) {
  const auto [begin, end] = BlocksOf(worker_, matrix, unit);
  const auto pack = matrix.integers ? &WeightPacker::PackIntegers : &WeightPacker::PackOne;
  const size_t step =
      std::max<size_t>(1, kReleaseBytes / std::max<size_t>(1, matrix.block_bytes()));
  for (size_t first = begin; first < end; first += step) {
    const size_t last = std::min(first + step, end);
    for (size_t block = first; block < last; ++block) {
      (this->*pack)(matrix, segments, column, block);
      progress::Advance();
    }
    Release(segments, {first * kBlockN, last * kBlockN});
  }
}

void WeightPacker::Release(const std::vector<Segment>& segments, Range outputs) const {
  size_t output = 0;
  for (const Segment& segment : segments) {
    const size_t first = std::max(output, outputs.begin);
    const size_t last = std::min(output + segment.count, outputs.end);
    if (segment.tensor && first < last)
      source_.Release(*segment.tensor, segment.row + first - output, last - first);
    output += segment.count;
  }
}

void WeightPacker::PackOne(const PackedMatrix& matrix, const std::vector<Segment>& segments,
                           size_t column, size_t block) {
  const size_t first = block * kBlockN, rows = std::min(kBlockN, matrix.outputs - first);
  std::byte* dst = matrix.data + block * matrix.block_bytes();
  size_t output = 0;
  for (const Segment& segment : segments) {
    // Most blocks lie within one tensor and are packed straight from the file.
    if (first >= output && first + rows <= output + segment.count && segment.tensor) {
      const auto columns = static_cast<size_t>(segment.tensor->shape.at(1));
      const std::byte* src =
          source_.Rows(*segment.tensor, segment.row + first - output, rows, scratch_);
      src += column * kernels::SizeOf(segment.tensor->dtype);
      kernels::PackBlock(dst, matrix.dtype, src, segment.tensor->dtype, columns, rows, matrix.k);
      return;
    }
    output += segment.count;
  }
  GatherAndPack(matrix, segments, column, first, rows, dst);
}

void WeightPacker::PackIntegers(const PackedMatrix& matrix, const std::vector<Segment>& segments,
                                size_t column, size_t block) {
  const size_t first = block * kBlockN, rows = std::min(kBlockN, matrix.outputs - first);
  integers_.Clear(*matrix.integers, matrix.order.get(), rows);
  size_t output = 0;
  for (const Segment& segment : segments) {
    const size_t begin = std::max(output, first),
                 end = std::min(output + segment.count, first + rows);
    if (begin < end && segment.tensor)
      integers_.Put(*source_.Quantised(segment.tensor->name), segment.row + begin - output,
                    end - begin, column, begin - first);
    output += segment.count;
  }
  integers_.Pack(matrix.data + block * matrix.block_bytes(), rows);
}

// A block whose outputs come from several tensors: collected in float32 first.
void WeightPacker::GatherAndPack(const PackedMatrix& matrix, const std::vector<Segment>& segments,
                                 size_t column, size_t first, size_t rows, std::byte* dst) {
  gathered_.assign(rows * matrix.k, 0.0f);
  size_t output = 0;
  for (const Segment& segment : segments) {
    const size_t begin = std::max(output, first),
                 end = std::min(output + segment.count, first + rows);
    for (size_t at = begin; at < end && segment.tensor; ++at) {
      const TensorInfo& tensor = *segment.tensor;
      const std::byte* src = source_.Rows(tensor, segment.row + at - output, 1, scratch_) +
                             column * kernels::SizeOf(tensor.dtype);
      auto* row = reinterpret_cast<std::byte*>(gathered_.data() + (at - first) * matrix.k);
      kernels::Convert(row, Dtype::kF32, src, tensor.dtype, matrix.k);
    }
    output += segment.count;
  }
  kernels::PackBlock(dst, matrix.dtype, reinterpret_cast<const std::byte*>(gathered_.data()),
                     Dtype::kF32, matrix.k, rows, matrix.k);
}

}  // namespace pinion
