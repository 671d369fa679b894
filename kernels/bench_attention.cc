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
  const size_t block_bytes = KvBlockBytes(dtype, block_tokens, 1, kHeadDim);
  const size_t blocks = context / block_tokens, pool_blocks = kPoolBytes / block_bytes;
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
  for (auto _ : state) {
    attention({.q = q.data(),
               .q_stride = kGroup * kHeadDim,
               .tokens = tokens,
               .group = kGroup,
               .head_dim = kHeadDim,
               .first_position = static_cast<int64_t>(context - tokens),
               .context_begin = 0,
               .context_end = static_cast<int64_t>(context),
               .cache = pool,
               .block_bytes = block_bytes,
               .block_table = table.data() + sequence * blocks,
               .block_tokens = block_tokens,
               .kv_head = 0,
               .kv_heads = 1,
               .dtype = dtype,
               .scale = 0.088f,
               .out = out.data(),
               .max = max.data(),
               .sum = sum.data()});
    sequence = (sequence + 1) % sequences;
  }
  ReportBytes(state, blocks * block_bytes);
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
