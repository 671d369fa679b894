#include "engine/calibrate/gptq.h"

#include <algorithm>

namespace pinion {
namespace {

using kernels::Dtype;
using kernels::kBlockN;

constexpr size_t kTileRows = 64, kTileBlocks = 8;  // 128 KiB of products stay in L2

}  // namespace

Gptq::Gptq(const GramFactor& factor, const RoundingJob& job)
    : factor_(factor),
      job_(job),
      moves_(job.n * job.k),
      errors_(job.n * kBlockN),
      later_(kernels::RoundUp(job.k, kBlockN) * kBlockN) {}

void Gptq::Round(const kernels::Table& table, const Worker& worker) {
  const auto [first, last] = worker.Slice(job_.n);
  AlignedFloats products(kTileRows * kTileBlocks * kBlockN);
  // Columns go in blocks of 64. Inside a block each row is corrected column by column; then one
  // matrix product applies the block's errors to all later columns.
  for (size_t begin = 0; begin < job_.k; begin += kBlockN) {
    for (size_t row = first; row < last; ++row)
      RoundBlock(row, begin, std::min(kBlockN, job_.k - begin));
    worker.TeamBarrier();  // all are done with the last block's packed matrix
    PackLater(worker, begin);
    worker.TeamBarrier();
    MoveLater(table, first, last, begin, products);
  }
}

// Rounds columns [begin, begin + width) of one row.
void Gptq::RoundBlock(size_t row, size_t begin, size_t width) {
  const size_t group = job_.scheme.group_of(job_.k), groups = (job_.k + group - 1) / group;
  const CodeRange range = job_.scheme.range();
  const float* weights = job_.weights + row * job_.k;
  const float* moves = moves_.data() + row * job_.k;
  float* errors = errors_.data() + row * kBlockN;
  GroupScale scale;
  for (size_t j = 0; j < width; ++j) {
    const size_t column = begin + j, at = row * groups + column / group;
    if (column % group == 0 || j == 0) {
      const size_t start = column / group * group;
      scale = ScaleOf(job_.scheme, weights + start, std::min(group, job_.k - start));
      job_.scales[at] = scale.scale;
      job_.offsets[at] = scale.offset();
    }
    const float* dependence = factor_.column(column) + begin;
    float best = weights[column] + moves[column];
    for (size_t i = 0; i < j; ++i) best += errors[i] * dependence[i];
    const int8_t code = RoundWeight(range, scale, best);
    job_.codes[row * job_.k + column] = code;
    errors[j] = weights[column] - scale.scale * (static_cast<float>(code) - scale.zero);
  }
}

// Packs rows [begin, begin + 64) of U, for all columns after them, to multiply the errors with.
void Gptq::PackLater(const Worker& worker, size_t begin) {
  const size_t after = begin + kBlockN;
  if (after >= job_.k) return;
  const size_t blocks = (job_.k - after + kBlockN - 1) / kBlockN;
  const auto [first, last] = worker.Slice(blocks);
  for (size_t block = first; block < last; ++block) {
    const size_t column = after + block * kBlockN;
    kernels::PackBlock(later_.bytes() + block * kernels::PackedBlockBytes(Dtype::kF32, kBlockN),
                       Dtype::kF32,
                       reinterpret_cast<const std::byte*>(factor_.column(column) + begin),
                       Dtype::kF32, job_.k, std::min(kBlockN, job_.k - column), kBlockN);
  }
}

void Gptq::MoveLater(const kernels::Table& table, size_t first, size_t last, size_t begin,
                     AlignedFloats& products) {
  const size_t after = begin + kBlockN;
  if (after >= job_.k) return;
  const size_t blocks = (job_.k - after + kBlockN - 1) / kBlockN;
  for (size_t block = 0; block < blocks; block += kTileBlocks) {
    const size_t count = std::min(kTileBlocks, blocks - block), column = after + block * kBlockN;
    const size_t live = std::min(count * kBlockN, job_.k - column), stride = count * kBlockN;
    for (size_t row = first; row < last; row += kTileRows) {
      const size_t rows = std::min(kTileRows, last - row);
      kernels::Gemm(table, Dtype::kF32,
                    {errors_.data() + row * kBlockN,
                     later_.bytes() + block * kernels::PackedBlockBytes(Dtype::kF32, kBlockN),
                     products.data(), rows, kBlockN, count, stride});
      for (size_t i = 0; i < rows; ++i)
        table.add(moves_.data() + (row + i) * job_.k + column, products.data() + i * stride, live);
    }
  }
}

}  // namespace pinion
