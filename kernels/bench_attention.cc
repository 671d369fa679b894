// Attention of one KV head of 128 dimensions. Decode: 4 query heads, one token, a long context: B/s
// counts keys and values (compare with probe/read). Prefill: 16 tokens of 4 heads: FLOP/s counts
// both multiplications (compare with probe/multiply).

#include <cstdlib>
#include <vector>

#include "kernels/bench.h"

namespace pinion::kernels::bench {
namespace {

constexpr size_t kHeadDim = 128, kGroup = 4;

// tokens, context, block_tokens from the arguments. Decode walks through the pool, sequence after
// sequence; prefill stays on one context, as a chunk's query heads do.
void BM_Attention(benchmark::State& state, Isa isa, Dtype dtype) {
  const auto tokens = static_cast<size_t>(state.range(0));
  const auto context = static_cast<size_t>(state.range(1));
  const auto block_tokens = static_cast<size_t>(state.range(2));
  const size_t plane_block = KvPlaneBlockBytes(dtype, block_tokens, kHeadDim);
  const size_t blocks = context / block_tokens, pool_blocks = kPoolBytes / (2 * plane_block);
  std::vector<int32_t> table(pool_blocks);
  for (size_t i = 0; i < pool_blocks; ++i) {
    table[i] = static_cast<int32_t>(i * 7919 % pool_blocks);  // scattered, as a pool gets
  }
  const size_t rows = tokens * kGroup;
  std::vector<float> q(rows * kHeadDim, 0.5f), out(q.size()), max(rows), sum(rows);
  const auto attention = TableFor(isa).attention;
  const size_t sequences = tokens == 1 ? pool_blocks / blocks : 1;
  size_t sequence = 0;
  const std::byte* pool = Pool();
  std::vector<const float*> q_rows(tokens);
  std::vector<int64_t> positions(tokens);
  for (size_t t = 0; t < tokens; ++t) {
    q_rows[t] = q.data() + t * kGroup * kHeadDim;
    positions[t] = static_cast<int64_t>(context - tokens + t);
  }
  for (auto _ : state) {
    attention({.q = q_rows.data(),
               .positions = positions.data(),
               .tokens = tokens,
               .group = kGroup,
               .key_dim = kHeadDim,
               .value_dim = kHeadDim,
               .window = kNoWindow,
               .context_begin = 0,
               .context_end = static_cast<int64_t>(context),
               .keys = pool,
               .values = pool + kPoolBytes / 2,
               .key_stride = plane_block,
               .value_stride = plane_block,
               .block_table = table.data() + sequence * blocks,
               .block_tokens = block_tokens,
               .dtype = dtype,
               .scale = 0.088f,
               .soft_cap = 0,
               .out = out.data(),
               .max = max.data(),
               .sum = sum.data()});
    sequence = (sequence + 1) % sequences;
  }
  ReportBytes(state, blocks * 2 * plane_block);
  ReportFlops(state, 4.0 * static_cast<double>(rows * context * kHeadDim));
}

const bool registered = [] {
  for (Isa isa : UsableIsas()) {
    for (Dtype dtype : {Dtype::kF32, Dtype::kBf16, Dtype::kF16}) {
      const std::string name = std::string("attention/") + Name(isa) + "/" + Name(dtype);
      benchmark::RegisterBenchmark(name.c_str(), BM_Attention, isa, dtype)
          ->Args({1, 4096, 16})
          ->Args({1, 4096, 128})
          ->Args({16, 2048, 16})
          ->Args({16, 2048, 128});
    }
  }
  return true;
}();

}  // namespace
}  // namespace pinion::kernels::bench
