// Writing keys and values of all heads of a layer, 64 tokens in turn out of a prompt of 2048, as
// prefill does: B/s counts what is read, in float32. `by_head` writes 16 tokens of a head at once,
// `by_token` all heads of a token one by one.

#include <vector>

#include "kernels/bench.h"

namespace pinion::kernels::bench {
namespace {

constexpr size_t kTokens = 2048, kBlockTokens = 64, kTogether = 16;

// A layer's heads as a projection leaves them, queries, keys, values; and its cache, in which
// blocks of keys alternate with those of values.
struct Prompt {
  size_t heads, head_dim;
  size_t row = 3 * heads * head_dim;
  std::vector<float> qkv = std::vector<float>(kTokens * row, 0.5f);

  void Write(const Table& table, KvDtype dtype, size_t token, size_t tokens, size_t head) const {
    const float* key = qkv.data() + token * row + (heads + head) * head_dim;
    const size_t plane = KvPlaneBlockBytes(dtype, kBlockTokens, head_dim);
    const size_t block = head * kTokens / kBlockTokens + token / kBlockTokens;
    std::byte* const keys = Pool() + 2 * block * plane;
    table.kv_write({.keys = keys,
                    .values = keys + plane,
                    .k = key,
                    .v = key + heads * head_dim,
                    .slot = token % kBlockTokens,
                    .block_tokens = kBlockTokens,
                    .key_dim = head_dim,
                    .value_dim = head_dim,
                    .dtype = dtype,
                    .tokens = tokens,
                    .stride = row});
  }
};

// Arguments: heads, head_dim.
void BM_KvWrite(benchmark::State& state, Isa isa, KvDtype dtype, size_t together) {
  const Table& table = TableFor(isa);
  const auto heads = static_cast<size_t>(state.range(0));
  const Prompt prompt{heads, static_cast<size_t>(state.range(1))};
  size_t first = 0;
  for (auto _ : state) {
    for (size_t group = first; group < first + kBlockTokens; group += together) {
      for (size_t head = 0; head < heads; ++head) prompt.Write(table, dtype, group, together, head);
    }
    first = (first + kBlockTokens) % kTokens;
  }
  const size_t floats = kBlockTokens * 2 * heads * prompt.head_dim;
  ReportBytes(state, floats * sizeof(float));
}

const bool registered = [] {
  for (Isa isa : UsableIsas()) {
    for (KvDtype dtype : kKvDtypes) {
      const std::string name = std::string("kv_write/") + Name(isa) + "/" + Name(dtype);
      for (const size_t together : {size_t{1}, kTogether}) {
        const std::string order = together == 1 ? "/by_token" : "/by_head";
        benchmark::RegisterBenchmark((name + order).c_str(), BM_KvWrite, isa, dtype, together)
            ->Args({12, 64})
            ->Args({8, 128});
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace pinion::kernels::bench
