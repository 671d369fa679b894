#include "kernels/kv_gather.h"

#include <cstring>

#include "tests/kernels/testing.h"

namespace pinion::kernels::testing {
namespace {

// Gathered tokens are those that kv_write leaves in blocks of their own, to the bit:
// elements and scales, over block borders on both sides, whatever lies between the blocks.
TEST(KvGather, CopiesTheBytesThatWritingTheTokensAloneWouldLeave) {
  constexpr size_t kContext = 100, kDim = 24;
  const std::vector<float> keys = Normal(kContext * kDim, 1);
  const std::vector<int32_t> positions = {0,  1,  5,  15, 16, 31, 47, 48, 49, 50,
                                          63, 64, 65, 66, 67, 70, 71, 80, 99};
  for (const size_t block_tokens : {size_t{16}, size_t{48}}) {
    for (const KvDtype dtype : kKvDtypes) {
      SCOPED_TRACE(::testing::Message() << Name(dtype) << ", blocks of " << block_tokens);
      const size_t bytes = KvPlaneBlockBytes(dtype, block_tokens, kDim);
      const size_t blocks = (kContext + block_tokens - 1) / block_tokens;
      const KvStrides strides = {bytes + 64, 2 * (bytes + 64) + 128, 1};
      std::vector<int32_t> table(blocks);
      for (size_t i = 0; i < blocks; ++i) table[i] = static_cast<int32_t>(blocks - 1 - i);
      Guarded<std::byte> plane(strides.At(blocks - 1) + bytes, 64);
      const auto write = [&](std::byte* block, size_t slot, const float* key) {
        TableFor(Isa::kScalar)
            .kv_write({.keys = block,
                       .values = nullptr,
                       .k = key,
                       .v = nullptr,
                       .slot = slot,
                       .block_tokens = block_tokens,
                       .key_dim = kDim,
                       .value_dim = kDim,
                       .dtype = dtype});
      };
      for (size_t p = 0; p < kContext; ++p)
        write(plane.data() + strides.At(static_cast<size_t>(table[p / block_tokens])),
              p % block_tokens, &keys[p * kDim]);
      const size_t size = (positions.size() + block_tokens - 1) / block_tokens * bytes;
      Guarded<std::byte> want(size, 64), got(size, 64);
      std::memset(want.data(), 0, size);
      std::memset(got.data(), 0, size);
      for (size_t i = 0; i < positions.size(); ++i)
        write(want.data() + i / block_tokens * bytes, i % block_tokens,
              &keys[static_cast<size_t>(positions[i]) * kDim]);
      GatherKeys({.keys = plane.data(),
                  .strides = strides,
                  .block_table = table.data(),
                  .positions = positions.data(),
                  .count = positions.size(),
                  .block_tokens = block_tokens,
                  .key_dim = kDim,
                  .dtype = dtype,
                  .dst = got.data()});
      EXPECT_EQ(std::memcmp(got.data(), want.data(), size), 0);
    }
  }
}

}  // namespace
}  // namespace pinion::kernels::testing
