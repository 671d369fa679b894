// Attention of one KV head. Decode is one token with a long context: B/s counts keys and values.
// Prefill is a chunk of tokens: FLOP/s counts both multiplications. of_roof is the share of the
// limit: the longest of multiplications over peak, exponentials over their rate and, if the context
// is read from memory, its bytes over bandwidth, divided by the time taken; all are measured right
// after the loop on the same threads.

#include <bit>
#include <vector>

#include "kernels/bench_roof.h"

namespace pinion::kernels::bench {
namespace {

// Block numbers as a pool hands them out: runs of `run` neighbours, the runs scattered.
std::vector<int32_t> Table(size_t pool_blocks, size_t run) {
  const size_t runs = pool_blocks / run;
  std::vector<int32_t> table(runs * run);
  for (size_t i = 0; i < table.size(); ++i)
    table[i] = static_cast<int32_t>(i / run * 7919 % runs * run + i % run);
  return table;
}

// From this context on decode reads from memory; shorter sequences stay in cache.
constexpr size_t kLongContext = 4096;

// Operations a second of the fastest instruction for keys and values of this type.
double PeakOfCache(Isa isa, KvDtype dtype) {
  const auto int8 = Int8Probe(isa);
  if (dtype == KvDtype::kI8 && int8 != nullptr) return BestRate([&] { return int8(kProbeRounds); });
  const bool as_bf16 =
      dtype == KvDtype::kBf16 || dtype == KvDtype::kE5m2 || dtype == KvDtype::kE4m3;
  return PeakOf(isa, as_bf16 ? Dtype::kBf16 : Dtype::kF32);
}

constexpr size_t kBlockTokens = 64;

// A layer of a cache as the engine lays it out (engine/decoder/kv_cache.h), in a thread's share of
// the pool: stretches of each head's blocks, in which values of narrow heads alternate with keys.
struct Layer {
  const std::byte* data;
  size_t heads, blocks, values_offset;
  KvStrides strides;

  Layer(const benchmark::State& state, size_t heads, size_t stretch, size_t head_dim,
        size_t plane_block)
      : heads(heads) {
    const bool alternate = head_dim <= 64;
    const size_t share = kPoolBytes / static_cast<size_t>(state.threads());
    const size_t span = 2 * heads * stretch * plane_block;
    data = Pool() + share * static_cast<size_t>(state.thread_index());
    blocks = share / span * stretch;
    values_offset = alternate ? plane_block : stretch * plane_block;
    strides = {alternate ? 2 * plane_block : plane_block, span,
               static_cast<unsigned>(std::countr_zero(stretch))};
  }
  const std::byte* keys(size_t head) const { return data + head * strides.span / heads; }
  const std::byte* values(size_t head) const { return keys(head) + values_offset; }
  size_t size_bytes() const { return strides.At(blocks); }
};

// Arguments as registered below. In decode each thread walks through its own part of the pool,
// sequence after sequence and head after head; prefill stays on one context, as a chunk's query
// heads do.
void BM_Attention(benchmark::State& state, Isa isa, KvDtype dtype) {
  const auto arg = [&](size_t i) { return static_cast<size_t>(state.range(i)); };
  const size_t tokens = arg(0), context = arg(1), head_dim = arg(2), group = arg(3);
  const size_t plane_block = KvPlaneBlockBytes(dtype, kBlockTokens, head_dim);
  const size_t blocks = context / kBlockTokens;
  const Layer layer(state, arg(5), arg(6), head_dim, plane_block);
  const std::vector<int32_t> table = Table(layer.blocks, arg(4));
  const size_t rows = tokens * group;
  std::vector<float> q(rows * head_dim, 0.5f), out(q.size()), max(rows), sum(rows);
  const auto attention = TableFor(isa).attention;
  const bool walks = tokens == 1 && context >= kLongContext;
  const size_t turns = walks ? table.size() / blocks * layer.heads : 1;
  size_t turn = 0;
  std::vector<const float*> q_rows(tokens);
  std::vector<int64_t> positions(tokens);
  for (size_t t = 0; t < tokens; ++t) {
    q_rows[t] = q.data() + t * group * head_dim;
    positions[t] = static_cast<int64_t>(context - tokens + t);
  }
  const double start = Now();
  double begin = start;
  for (auto _ : state) {
    if (begin == start) begin = Now();  // the loop's start is a barrier of all threads
    attention({.q = q_rows.data(),
               .positions = positions.data(),
               .tokens = tokens,
               .group = group,
               .key_dim = head_dim,
               .value_dim = head_dim,
               .window = kNoWindow,
               .context_begin = 0,
               .context_end = static_cast<int64_t>(context),
               .keys = layer.keys(turn % layer.heads),
               .values = layer.values(turn % layer.heads),
               .key_strides = layer.strides,
               .value_strides = layer.strides,
               .block_table = table.data() + turn / layer.heads * blocks,
               .block_tokens = kBlockTokens,
               .dtype = dtype,
               .scale = 0.088f,
               .soft_cap = 0,
               .out = out.data(),
               .max = max.data(),
               .sum = sum.data()});
    turn = (turn + 1) % turns;
  }
  const double seconds = (Now() - begin) / static_cast<double>(state.iterations());
  const auto exps = static_cast<double>(rows * context),
             flops = 4.0 * exps * static_cast<double>(head_dim);
  const size_t bytes = blocks * 2 * plane_block;
  const Probes& probes = ProbesFor(isa);
  double roof = std::max(flops / PeakOfCache(isa, dtype),
                         exps / BestRate([&] { return probes.exp_f32(kProbeRounds); }));
  if (turns > 1)
    roof = std::max(roof,
                    static_cast<double>(bytes) / ReadRate(probes, layer.data, layer.size_bytes()));
  state.counters["of_roof"] = benchmark::Counter(roof / seconds, benchmark::Counter::kAvgThreads);
  ReportBytes(state, bytes);
  ReportFlops(state, flops);
}

// tokens, context, head_dim, group, neighbouring blocks in a run, KV heads, blocks in a stretch.
// The last two of kDecode stay in L2 and show the limit of the arithmetic.
using Arguments = std::vector<int64_t>;
const Arguments kDecode[] = {
    {1, 4096, 128, 4, 1, 8, 8},  {1, 4096, 128, 4, 64, 8, 8}, {1, 4096, 64, 7, 1, 2, 64},
    {1, 4096, 64, 7, 64, 2, 64}, {1, 4096, 64, 4, 1, 8, 16},  {1, 4096, 64, 4, 64, 8, 16},
    {1, 4096, 128, 2, 1, 8, 8},  {1, 4096, 128, 2, 64, 8, 8}, {1, 4096, 64, 1, 64, 32, 4},
    {1, 512, 64, 7, 8, 2, 64},   {1, 512, 64, 4, 8, 8, 16}};
const Arguments kPrefill[] = {{16, 2048, 128, 4, 32, 8, 8}, {16, 16384, 128, 4, 32, 8, 8},
                              {16, 2048, 64, 4, 32, 8, 16}, {16, 16384, 64, 4, 32, 8, 16},
                              {9, 2048, 64, 7, 32, 2, 64},  {9, 16384, 64, 7, 32, 2, 64},
                              {64, 256, 64, 1, 4, 12, 8}};

const bool registered = [] {
  for (Isa isa : UsableIsas()) {
    for (KvDtype dtype : kKvDtypes) {
      const std::string name = std::string("attention/") + Name(isa) + "/" + Name(dtype);
      auto* decode =
          benchmark::RegisterBenchmark((name + "/decode").c_str(), BM_Attention, isa, dtype);
      for (const Arguments& arguments : kDecode) decode->Args(arguments);
      decode->Threads(1)->Threads(2)->UseRealTime();
      auto* prefill =
          benchmark::RegisterBenchmark((name + "/prefill").c_str(), BM_Attention, isa, dtype);
      for (const Arguments& arguments : kPrefill) prefill->Args(arguments);
    }
  }
  return true;
}();

}  // namespace
}  // namespace pinion::kernels::bench
