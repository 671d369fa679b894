// Packing blocks of 64 outputs, k = 2048, one after the other as in loading a model. B/s counts the
// packed bytes.

#include "kernels/bench.h"

namespace pinion::kernels::bench {
namespace {

void BM_Pack(benchmark::State& state, Dtype src_type, Dtype dst_type) {
  constexpr size_t kK = 2048, kSrcBytes = kPoolBytes / 2;
  const size_t src_block = kBlockN * kK * SizeOf(src_type);
  const size_t dst_block = PackedBlockBytes(dst_type, kK);
  std::byte* pool = Pool();
  size_t src = 0, dst = 0;
  for (auto _ : state) {
    PackBlock(pool + kSrcBytes + dst, dst_type, pool + src, src_type, kK, kBlockN, kK);
    src = (src + src_block) % kSrcBytes;
    dst = (dst + dst_block) % kSrcBytes;
  }
  ReportBytes(state, dst_block);
}

const bool registered = [] {
  constexpr Dtype kTypes[] = {Dtype::kF32, Dtype::kBf16, Dtype::kF16};
  for (Dtype src : kTypes) {
    for (Dtype dst : kTypes) {
      const std::string name = std::string("pack/") + Name(src) + "/" + Name(dst);
      benchmark::RegisterBenchmark(name.c_str(), BM_Pack, src, dst);
    }
  }
  return true;
}();

}  // namespace
}  // namespace pinion::kernels::bench
