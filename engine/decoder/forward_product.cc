// Products of activations with packed matrices, whether these hold floats or integers.

#include <algorithm>

#include "engine/base/trace.h"
#include "engine/decoder/forward_pass.h"

namespace pinion {
namespace {

using kernels::kBlockN;

// dst[i] = src[order[i]], and zeros behind them.
template <typename T>
void Gather(const ColumnOrder& order, const std::byte* src, std::byte* dst, size_t padded) {
  const auto* from = reinterpret_cast<const T*>(src);
  auto* to = reinterpret_cast<T*>(dst);
  for (size_t i = 0; i < order.size(); ++i)
    to[i] = order[i] == kernels::kNoColumn ? T{} : from[order[i]];
  std::fill(to + order.size(), to + padded, T{});
}

// A copy of a row takes about as long as its product with one or two blocks: a single one is not
// worth it.
constexpr size_t kBlocksWorthACopy = 2;

// Bytes from row to row of what Prepare returns.
size_t PreparedStride(const ForwardPass& pass, const PackedMatrix& matrix, size_t rows) {
  const bool may_spread = !matrix.integers && matrix.packed_columns() <= pass.w.spread_columns;
  if (!may_spread || matrix.blocks() < kBlocksWorthACopy)
    return matrix.prepared_row_bytes(pass.activation);
  return kernels::GemmStride(pass.table, matrix.dtype, rows, matrix.packed_columns()) *
         kernels::SizeOf(pass.activation);
}

}  // namespace

void PrepareRow(const ForwardPass& pass, const PackedMatrix& matrix, const std::byte* src,
                std::byte* dst) {
  if (matrix.rounds()) {
    const uint32_t* order = matrix.order ? matrix.order->data() : nullptr;
    pass.integers.round(*matrix.integers, {dst, src, pass.activation, matrix.rounding, order});
  } else if (matrix.e4m3_rounding) {
    const size_t element = kernels::SizeOf(pass.activation);
    pass.e4m3.round({dst, src, pass.activation, matrix.k, *matrix.e4m3_rounding});
    std::fill(dst + matrix.k * element, dst + matrix.packed_columns() * element, std::byte{});
  } else if (pass.activation == kernels::Dtype::kF32) {
    Gather<float>(*matrix.order, src, dst, matrix.packed_columns());
  } else {
    Gather<kernels::Bf16>(*matrix.order, src, dst, matrix.packed_columns());
  }
}

PreparedRows Prepare(const ForwardPass& pass, const PackedMatrix& matrix, const std::byte* x,
                     size_t rows) {
  Observe(pass, matrix, x, rows);
  const size_t src_bytes = matrix.k_padded() * kernels::SizeOf(pass.activation);
  const size_t dst_bytes = PreparedStride(pass, matrix, rows);
  if (!matrix.prepares() && dst_bytes == src_bytes) return {x, src_bytes};
  pass.worker.Share(rows, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      const std::byte* src = x + row * src_bytes;
      std::byte* dst = pass.w.prepared + row * dst_bytes;
      if (matrix.prepares())
        PrepareRow(pass, matrix, src, dst);
      else
        std::copy_n(src, src_bytes, dst);
    }
  });
  return {pass.w.prepared, dst_bytes};
}

void MultiplyBlocks(const ForwardPass& pass, const PackedMatrix& matrix,
                    const BlockProduct& product) {
  const auto& [x, w, y, rows, blocks, ldy, x_stride] = product;
  if (matrix.rounds()) {
    const auto prefetch = pass.model.options.int_prefetch.For(*matrix.integers, rows);
    return pass.integers.gemm(*matrix.integers, {x, w, y, rows, blocks, ldy, prefetch});
  }
  if (matrix.is_e4m3()) {
    const auto prefetch = pass.model.options.int_prefetch.For(*matrix.integers, rows);
    return pass.e4m3.gemm(*matrix.integers,
                          {x, pass.activation, w, y, rows, blocks, ldy, prefetch});
  }
  const size_t columns = matrix.packed_columns();
  if (!matrix.integers) {
    kernels::GemmArgs args{x, w, y, rows, columns, blocks, ldy};
    args.x_stride = x_stride / kernels::SizeOf(pass.activation);
    return kernels::Gemm(pass.table, matrix.dtype, args);
  }
  for (size_t block = 0; block < blocks; ++block) {
    pass.integers.dequantise(*matrix.integers, w + block * matrix.block_bytes(), matrix.dtype,
                             pass.scratch.panel);
    kernels::Gemm(pass.table, matrix.dtype,
                  {x, pass.scratch.panel, y + block * kBlockN, rows, columns, 1, ldy});
  }
}

void Multiply(const ForwardPass& pass, const PackedMatrix& matrix, const PreparedRows& x,
              size_t row, size_t rows, size_t block, size_t blocks, float* y, size_t ldy) {
  if (blocks == 0) return;
  MultiplyBlocks(pass, matrix,
                 {x.first + row * x.stride, matrix.block(block), y, rows, blocks, ldy, x.stride});
}

kernels::ProductCut CutOf(const ForwardPass& pass, const PackedMatrix& matrix) {
  if (matrix.rounds()) {
    const auto cut = pass.integers.cut;
    return cut ? cut(*matrix.integers, pass.rows) : kernels::ProductCut{};
  }
  if (matrix.is_e4m3()) {
    const auto cut = pass.e4m3.cut;
    return cut ? cut(*matrix.integers, pass.activation, pass.rows) : kernels::ProductCut{};
  }
  auto cut = kernels::GemmCut(pass.table, matrix.dtype, pass.rows, matrix.packed_columns());
  if (matrix.integers) cut = {.rows = cut.rows_of_few};  // MultiplyBlocks takes block by block
  return cut;
}

void Project(const ForwardPass& pass, const char* name, const PackedMatrix& matrix,
             const std::byte* x, float* dst, size_t stride, PhaseScope scope, const float* bias) {
  const TraceSpan span(name);
  const PreparedRows prepared = Prepare(pass, matrix, x, pass.rows);
  const auto multiply = [&](size_t row, size_t rows, size_t begin, size_t end) {
    float* const y = dst + row * stride + begin * kBlockN;
    Multiply(pass, matrix, prepared, row, rows, begin, end - begin, y, stride);
    if (bias == nullptr) return;
    // At once, while the products are in cache.
    const size_t columns = std::min(end * kBlockN, matrix.outputs) - begin * kBlockN;
    for (size_t i = 0; i < rows; ++i)
      pass.table.add(y + i * stride, bias + begin * kBlockN, columns);
  };
  const kernels::ProductCut cut = CutOf(pass, matrix);
  ShareProducts(pass, matrix, cut.rows, cut.blocks, 1, multiply, scope);
}

}  // namespace pinion
