#include <algorithm>

#include "tests/kernels/attention_reference.h"
#include "tests/kernels/attention_scene.h"

namespace pinion::kernels::testing {
namespace {

void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0);
}

class AttentionTest : public ::testing::TestWithParam<Isa> {
 protected:
  const Table& kernels_ = TableFor(GetParam());

  void CheckWholeAndSplit(const Shape& shape) { Check(Scene(kernels_, shape)); }

  void Check(const Scene& scene) {
    const Shape& shape = scene.shape;
    SCOPED_TRACE(::testing::Message() << shape);
    const Reference want = Exact(scene, OperandRoundoff(GetParam(), shape.dtype));
    std::vector<std::vector<int64_t>> cuttings = {{}};
    const auto block = static_cast<int64_t>(shape.block_tokens);
    if (shape.context_end > block) cuttings.push_back({block});
    if (shape.context_end > 4 * block) cuttings.push_back({block, 3 * block, 4 * block});
    for (const auto& cuts : cuttings) {
      const std::vector<float> got = RunParts(kernels_, scene, cuts);
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], want.exact[i], want.bound[i])
            << cuts.size() << " cuts, row " << i / shape.value_dim << ", " << i % shape.value_dim;
      }
    }
  }
};

TEST_P(AttentionTest, DecodeMatchesDoubleForEveryGroupAndHeadDim) {
  for (KvDtype dtype : kKvDtypes) {
    for (size_t group = 1; group <= 16; ++group) {
      CheckWholeAndSplit(Plain(1, group, 64, 16, 36, 37, dtype));
    }
    for (size_t head_dim = 8; head_dim <= 256; head_dim += 8) {
      CheckWholeAndSplit(Plain(1, 3, head_dim, 32, 69, 70, dtype));
    }
  }
}

// Both sides of strips of 64 and of 256 tokens, in tiles as wide as a block and narrower ones.
TEST_P(AttentionTest, DecodeMatchesDoubleOverSeveralStrips) {
  for (KvDtype dtype : kKvDtypes) {
    for (int64_t position : {62, 63, 64, 255, 256, 600}) {
      for (size_t group : {4, 7}) {
        for (size_t head_dim : {64, 128}) {
          CheckWholeAndSplit(Plain(1, group, head_dim, 64, position, position + 1, dtype));
        }
      }
    }
    CheckWholeAndSplit(Plain(1, 4, 16, 16, 600, 601, dtype));
  }
}

// Stretches of one block, some and many, left in any order and one after the other.
TEST_P(AttentionTest, BlocksMayLieInStretches) {
  for (KvDtype dtype : kKvDtypes) {
    for (Shape shape :
         {Plain(1, 4, 64, 64, 1100, 1101, dtype), Plain(1, 4, 128, 64, 1100, 1101, dtype),
          Plain(1, 7, 64, 16, 300, 301, dtype), Plain(9, 4, 64, 16, 290, 299, dtype),
          Latent(2, 3, 72, 56, 16, 300, dtype)}) {
      for (unsigned shift : {0, 1, 4}) {
        for (bool shuffled : {false, true}) {
          shape.shift = shift;
          shape.shuffled = shuffled;
          CheckWholeAndSplit(shape);
        }
      }
    }
  }
}

// A first token that gets nearly all the weight, as in most models, takes no bits from those of
// other strips: int8 rounds weights by a step of the largest in a strip.
TEST_P(AttentionTest, SmallWeightsKeepTheirBitsBesideALargeOneElsewhere) {
  constexpr size_t kContext = 512, kFirst = 256, kDim = 64;
  Scene scene(kernels_, Plain(1, 1, kDim, 64, kContext - 1, kContext, KvDtype::kI8));
  std::fill(scene.q.begin(), scene.q.end(), 1.0f);
  const std::vector<float> zeros(kDim, 0), large(kDim, 10 / scene.scale() / kDim);
  float largest_value = 0;
  for (size_t p = 0; p < kContext; ++p) {
    const float* value = p < kFirst ? zeros.data() : &scene.v[p * kDim];
    scene.Write(kernels_, p, p == 0 ? large.data() : zeros.data(), value);
    scene.ReadBack(p);
    for (size_t d = 0; d < kDim; ++d) {
      largest_value = std::max(largest_value, std::abs(scene.v[p * kDim + d]));
    }
  }
  const double weight = std::exp(-static_cast<double>(scene.k[0]) * scene.scale() * kDim);
  const double sum = 1 + (kContext - 1) * weight;
  const std::vector<float> got = RunParts(kernels_, scene, {});
  for (size_t d = 0; d < kDim; ++d) {
    double want = 0;
    for (size_t p = kFirst; p < kContext; ++p) want += weight / sum * scene.v[p * kDim + d];
    const double step = weight / sum / 16383 * 1.01 * largest_value;  // half of twice the largest
    ASSERT_NEAR(got[d], want, (kContext - kFirst) * step) << d;
  }
}

TEST_P(AttentionTest, ChunksMatchDoubleUnderTheCausalMask) {
  for (KvDtype dtype : kKvDtypes) {
    for (int64_t first : {0, 1, 15, 16, 17, 100}) {
      for (size_t tokens : {1, 2, 7, 16, 33, 64}) {
        CheckWholeAndSplit(
            Plain(tokens, 1, 24, 16, first, first + static_cast<int64_t>(tokens), dtype));
      }
    }
    CheckWholeAndSplit(Plain(16, 4, 128, 64, 500, 516, dtype));
    CheckWholeAndSplit(Plain(4, 16, 80, 48, 3, 7, dtype));
  }
}

TEST_P(AttentionTest, KeysAndValuesMayHaveDifferentSizes) {
  for (KvDtype dtype : kKvDtypes) {
    CheckWholeAndSplit({3, 5, 24, 40, 16, 70, 73, dtype});
    CheckWholeAndSplit({16, 1, 192, 128, 32, 130, 146, dtype});
    CheckWholeAndSplit({1, 7, 8, 256, 48, 70, 71, dtype});
  }
}

// Windows that end within a pair, a vector, a block, a strip; shorter and longer than the chunk.
TEST_P(AttentionTest, SeesNothingBeforeTheWindow) {
  for (KvDtype dtype : kKvDtypes) {
    for (int64_t window : {1, 2, 3, 15, 16, 17, 33, 128, 129, 300}) {
      for (int64_t first : {0, 31, 200}) {
        Shape shape = Plain(7, 2, 24, 16, first, first + 7, dtype);
        shape.window = window;
        CheckWholeAndSplit(shape);
      }
    }
    Shape shape = Plain(16, 4, 64, 32, 500, 516, dtype);
    shape.window = 140;
    CheckWholeAndSplit(shape);
  }
}

// The first seen token within a pair, a vector, a block, a strip; before, among and beside a
// window.
TEST_P(AttentionTest, SeesNothingBeforeTheFirstSeen) {
  for (KvDtype dtype : kKvDtypes) {
    for (int64_t seen : {1, 2, 3, 15, 16, 17, 33, 128, 199, 200}) {
      for (int64_t window : {kNoWindow, int64_t{40}}) {
        Shape shape = Plain(7, 2, 24, 16, 200, 207, dtype);
        shape.first_seen = seen;
        shape.window = window;
        CheckWholeAndSplit(shape);
      }
    }
    Shape latent = Latent(2, 3, 72, 56, 16, 300, dtype);
    latent.first_seen = 130;
    CheckWholeAndSplit(latent);
  }
}

// An overflow before the window reaches no row that does not see it, and blocks wholly before it
// need not even have a number.
TEST_P(AttentionTest, IgnoresTokensBeforeTheWindow) {
  for (KvDtype dtype : kKvDtypes) {
    for (int64_t window : {1, 5, 14, 40}) {
      SCOPED_TRACE(::testing::Message() << Name(dtype) << ", window " << window);
      Shape shape = Plain(4, 3, 40, 16, 67, 71, dtype);
      shape.window = window;
      Scene scene(kernels_, shape);
      const std::vector<float> want = RunParts(kernels_, scene, {});
      for (int64_t token = 0; token < 4; ++token) {
        scene.FillSlots(0, 67 + token - window + 1, token % 2 == 0 ? INFINITY : NAN);
        const std::vector<float> got = RunParts(kernels_, scene, {});
        const auto hidden = token * 3 * 40;  // rows before `token` see what was planted
        ExpectSameBits({got.begin() + hidden, got.end()}, {want.begin() + hidden, want.end()});
      }
      const int64_t first_seen = 67 - window + 1;
      std::fill_n(scene.table.begin(), first_seen / 16, -1);
      const std::vector<float> got = RunParts(kernels_, scene, {});
      ExpectSameBits({got.begin() + 360, got.end()}, {want.begin() + 360, want.end()});
    }
  }
}

TEST_P(AttentionTest, SoftCapsScores) {
  for (KvDtype dtype : kKvDtypes) {
    for (float cap : {0.5f, 2.0f, 50.0f}) {
      Shape shape = Plain(5, 3, 40, 16, 140, 145, dtype);
      shape.soft_cap = cap;
      CheckWholeAndSplit(shape);
      shape.window = 21;
      CheckWholeAndSplit(shape);
    }
  }
}

TEST_P(AttentionTest, SinksJoinTheDenominatorOnce) {
  for (KvDtype dtype : kKvDtypes) {
    Shape shape = Plain(3, 8, 64, 16, 140, 143, dtype);
    shape.sinks = true;
    CheckWholeAndSplit(shape);
    shape.window = 9;  // whole parts see nothing
    CheckWholeAndSplit(shape);
  }
}

TEST_P(AttentionTest, RowsThatSeeASinkAloneAreZero) {
  const float out = 0, max = -INFINITY, sum = 0, sink = 3;
  const std::vector<float> zeros(8, out);
  std::vector<float> dst(8, 7);
  const AttentionPart part = {zeros.data(), &max, &sum};
  kernels_.attention_merge({&part, 1, 1, 1, 8, &sink, dst.data(), 8, Dtype::kF32});
  for (float value : dst) EXPECT_EQ(value, 0);
}

// Many rows share what is widened for them; keys of 576 do not fit there.
TEST_P(AttentionTest, ManyRowsMatchDoubleForEverySizeOfKey) {
  for (KvDtype dtype : kKvDtypes) {
    for (size_t tokens : {8, 9, 10}) {  // 24, 27 and 30 rows: tiles of six, and of five
      for (size_t key_dim : {64, 128, 136, 256}) {
        Shape shape = Plain(tokens, 3, key_dim, 64, 300, 300, dtype);
        shape.context_end += static_cast<int64_t>(tokens);
        CheckWholeAndSplit(shape);
      }
    }
    CheckWholeAndSplit(Latent(2, 16, 576, 512, 32, 100, dtype));
  }
}

TEST_P(AttentionTest, LatentValuesAreTheFirstElementsOfTheKeys) {
  for (KvDtype dtype : kKvDtypes) {
    CheckWholeAndSplit(Latent(1, 16, 576, 512, 32, 100, dtype));
    CheckWholeAndSplit(Latent(1, 64, 40, 24, 16, 37, dtype));
    CheckWholeAndSplit(Latent(5, 4, 72, 56, 16, 140, dtype));
  }
}

// Neighbours in a batch that share a prefix: each has its own position.
TEST_P(AttentionTest, QueryTokensMayStandAnywhere) {
  for (KvDtype dtype : kKvDtypes) {
    Scene scene(kernels_, Plain(4, 3, 40, 16, 0, 150, dtype));
    scene.positions = {149, 3, 140, 77};
    std::swap(scene.q_rows[0], scene.q_rows[2]);
    Check(scene);
    scene.shape.window = 30;
    Check(scene);
  }
}

// Of the sequences that share a prefix, each call of a step may have any: the sums must be those of
// one call with all of them.
TEST_P(AttentionTest, CallsThatShareARunComputeTheResultOfOneCall) {
  constexpr size_t kTokens = 6;
  for (KvDtype dtype : kKvDtypes) {
    for (size_t head_dim : {64, 128}) {
      for (size_t group : {1, 4, 7}) {  // one call has 6, 24 and 42 rows
        for (bool shuffled : {false, true}) {
          Shape shape = Plain(kTokens, group, head_dim, 64, 600, 600, dtype);
          shape.shuffled = shuffled;
          const Scene scene(kernels_, shape);
          SCOPED_TRACE(::testing::Message() << shape);
          const size_t rows = scene.rows(), values = group * head_dim;
          std::vector<float> out(rows * head_dim), max(rows), sum(rows);
          kernels_.attention(scene.Args(0, 600, out.data(), max.data(), sum.data()));
          std::vector<float> own_out(out.size()), own_max(rows), own_sum(rows);
          for (size_t token = 0; token < kTokens; ++token) {
            AttentionArgs args = scene.Args(0, 600, &own_out[token * values],
                                            &own_max[token * group], &own_sum[token * group]);
            args.q += token;
            args.positions += token;
            args.tokens = 1;
            args.step_tokens = kTokens;
            kernels_.attention(args);
          }
          ExpectSameBits(own_out, out);
          ExpectSameBits(own_max, max);
          ExpectSameBits(own_sum, sum);
        }
      }
    }
  }
}

// Tokens behind the query are not seen, even if the range and the cache hold them.
TEST_P(AttentionTest, IgnoresTokensAfterTheQuery) {
  for (KvDtype dtype : kKvDtypes) {
    CheckWholeAndSplit(Plain(5, 2, 32, 16, 10, 90, dtype));
  }
}

// Slots are recycled as they are: what an earlier request left behind the context, an overflow's
// infinities and NaN among it, must reach no row, through keys or values.
TEST_P(AttentionTest, IgnoresSlotsBehindTheContext) {
  for (KvDtype dtype : kKvDtypes) {
    for (const Shape& shape :
         {Plain(1, 4, 128, 16, 36, 37, dtype), Plain(1, 3, 40, 64, 0, 1, dtype),
          Plain(1, 1, 64, 32, 160, 161, dtype), Plain(5, 2, 24, 16, 130, 135, dtype),
          Plain(1, 2, 72, 256, 129, 130, dtype), Plain(16, 4, 64, 48, 47, 63, dtype),
          Latent(2, 3, 72, 56, 32, 44, dtype)}) {
      SCOPED_TRACE(::testing::Message() << shape);
      Scene scene(kernels_, shape);
      const std::vector<float> want = RunParts(kernels_, scene, {});
      for (float leftover : {NAN, INFINITY, -INFINITY}) {
        scene.FillSlotsFrom(shape.context_end, leftover);
        ExpectSameBits(RunParts(kernels_, scene, {}), want);
      }
    }
  }
}

// A later token of the same chunk must not reach the rows before it either: their outputs become
// keys and values that other requests with the same prefix read.
TEST_P(AttentionTest, IgnoresLaterTokens) {
  constexpr size_t kTokens = 7, kGroup = 3, kHeadDim = 72;
  for (KvDtype dtype : kKvDtypes) {
    for (int64_t first : {0, 13, 125, 250}) {
      SCOPED_TRACE(::testing::Message() << Name(dtype) << ", first " << first);
      Scene scene(kernels_, Plain(kTokens, kGroup, kHeadDim, 32, first, first + 7, dtype));
      const std::vector<float> want = RunParts(kernels_, scene, {});
      for (int64_t token = 6; token > 0; --token) {
        scene.FillSlotsFrom(first + token, token % 2 == 0 ? NAN : INFINITY);
        std::vector<float> got = RunParts(kernels_, scene, {});
        const auto seen = static_cast<size_t>(token) * kGroup * kHeadDim;
        ExpectSameBits({got.begin(), got.begin() + static_cast<ptrdiff_t>(seen)},
                       {want.begin(), want.begin() + static_cast<ptrdiff_t>(seen)});
        EXPECT_FALSE(std::isfinite(got[seen])) << "the planted value must show in rows that see it";
      }
    }
  }
}

TEST_P(AttentionTest, RowsThatSeeNothingAreEmptyPartsAndZeroWhenMerged) {
  for (KvDtype dtype : kKvDtypes) {
    const Scene scene(kernels_, Plain(3, 2, 16, 16, 15, 32, dtype));
    std::vector<float> out(6 * 16, 1), max(6, 1), sum(6, 1);
    // The first token, at position 15, sees nothing of [16, 32).
    kernels_.attention(scene.Args(16, 32, out.data(), max.data(), sum.data()));
    for (size_t row = 0; row < 2; ++row) {
      EXPECT_EQ(max[row], -INFINITY);
      EXPECT_EQ(sum[row], 0);
      for (size_t d = 0; d < 16; ++d) EXPECT_EQ(out[row * 16 + d], 0);
    }
    EXPECT_GE(sum[2], 1);
    std::vector<float> dst(6 * 16, 7);
    const AttentionPart part = {out.data(), max.data(), sum.data()};
    kernels_.attention_merge({&part, 1, 3, 2, 16, nullptr, dst.data(), 32, Dtype::kF32});
    for (size_t i = 0; i < 32; ++i) EXPECT_EQ(dst[i], 0);
    for (size_t i = 32; i < dst.size(); ++i) EXPECT_TRUE(std::isfinite(dst[i]));
  }
}

// Scores far apart: the running maximum must rescale without overflow.
TEST_P(AttentionTest, SurvivesExtremeScores) {
  for (KvDtype dtype : kKvDtypes) {
    Scene scene(kernels_, Plain(2, 2, 64, 16, 98, 100, dtype));
    for (float& value : scene.q) value *= 3000;
    for (float value : RunParts(kernels_, scene, {16, 64})) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST_P(AttentionTest, MergeRoundsToBf16) {
  const Scene scene(kernels_, Plain(3, 2, 40, 16, 47, 50, KvDtype::kF32));
  const std::vector<float> f32 = RunParts(kernels_, scene, {16});
  const std::vector<float> bf16 = RunParts(kernels_, scene, {16}, Dtype::kBf16);
  for (size_t i = 0; i < f32.size(); ++i) EXPECT_EQ(bf16[i], ToFloat(ToBf16(f32[i])));
}

INSTANTIATE_TEST_SUITE_P(AllIsas, AttentionTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
