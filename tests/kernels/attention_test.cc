#include <algorithm>
#include <cstdlib>

#include "tests/kernels/testing.h"

namespace pinion::kernels::testing {
namespace {

struct Shape {
  size_t tokens, group, head_dim, block_tokens, kv_heads;
  int64_t first_position, context_end;
  Dtype dtype;
};

std::ostream& operator<<(std::ostream& os, const Shape& s) {
  return os << s.tokens << " tokens, group " << s.group << ", head_dim " << s.head_dim << ", block "
            << s.block_tokens << ", kv_heads " << s.kv_heads << ", first " << s.first_position
            << ", end " << s.context_end << ", " << Name(s.dtype);
}

// A cache filled through kv_write, blocks in shuffled order, and queries.
struct Scene {
  Shape shape;
  size_t kv_head, blocks, block_bytes, q_stride;
  Guarded<std::byte> cache;
  std::vector<int32_t> table;
  std::vector<float> q, k, v;  // k, v: [context_end][head_dim] of the head that is asked for

  Scene(const Table& kernels, const Shape& s)
      : shape(s),
        kv_head(s.kv_heads - 1),
        blocks((static_cast<size_t>(s.context_end) + s.block_tokens - 1) / s.block_tokens),
        block_bytes(KvBlockBytes(s.dtype, s.block_tokens, s.kv_heads, s.head_dim)),
        q_stride(s.group * s.head_dim + 24),
        cache(blocks * block_bytes, 64),
        table(blocks),
        q(Normal(s.tokens * q_stride, 3)),
        k(Normal(static_cast<size_t>(s.context_end) * s.head_dim, 4)),
        v(Normal(k.size(), 5)) {
    std::memset(cache.data(), 0, cache.size());
    for (size_t i = 0; i < blocks; ++i) table[i] = static_cast<int32_t>(i);
    std::shuffle(table.begin(), table.end(), std::mt19937(6));
    for (size_t p = 0; p < static_cast<size_t>(s.context_end); ++p) {
      std::byte* block =
          cache.data() + static_cast<size_t>(table[p / s.block_tokens]) * block_bytes;
      for (size_t head = 0; head < s.kv_heads; ++head) {
        // Other heads get the negated values: reading the wrong head shows.
        std::vector<float> kp(&k[p * s.head_dim], &k[p * s.head_dim] + s.head_dim), vp = kp;
        std::copy_n(&v[p * s.head_dim], s.head_dim, vp.begin());
        if (head != kv_head) {
          for (float& value : kp) value = -value;
          for (float& value : vp) value = -value;
        }
        kernels.kv_write({block, kp.data(), vp.data(), p % s.block_tokens, head, s.kv_heads,
                          s.block_tokens, s.head_dim, s.dtype});
      }
    }
    Round(k);
    Round(v);
  }

  // Overwrites every slot of the last blocks from position `begin` on, of all heads.
  void FillSlotsFrom(int64_t begin, float value) {
    const std::vector<float> filler(shape.head_dim, value);
    for (size_t p = static_cast<size_t>(begin); p < blocks * shape.block_tokens; ++p) {
      std::byte* block =
          cache.data() + static_cast<size_t>(table[p / shape.block_tokens]) * block_bytes;
      for (size_t head = 0; head < shape.kv_heads; ++head) {
        TableFor(Isa::kScalar)
            .kv_write({block, filler.data(), filler.data(), p % shape.block_tokens, head,
                       shape.kv_heads, shape.block_tokens, shape.head_dim, shape.dtype});
      }
    }
  }

  size_t rows() const { return shape.tokens * shape.group; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(shape.head_dim)); }

  void Round(std::vector<float>& values) const {
    std::byte one[4];
    for (float& value : values) {
      Set(one, shape.dtype, 0, value);
      value = Get(one, shape.dtype, 0);
    }
  }
};

// Splits the context at `cuts` (multiples of block_tokens), runs the parts and merges them.
std::vector<float> RunParts(const Table& kernels, const Scene& scene, std::vector<int64_t> cuts,
                            Dtype dst_type = Dtype::kF32) {
  const Shape& s = scene.shape;
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(s.context_end);
  const size_t parts = cuts.size() - 1, rows = scene.rows();
  Guarded<float> out(parts * rows * s.head_dim, 64), max(parts * rows), sum(parts * rows);
  for (size_t p = 0; p < parts; ++p) {
    kernels.attention({scene.q.data(), scene.q_stride, s.tokens, s.group, s.head_dim,
                       s.first_position, cuts[p], cuts[p + 1], scene.cache.data(),
                       scene.block_bytes, scene.table.data(), s.block_tokens, scene.kv_head,
                       s.kv_heads, s.dtype, scene.scale(), &out[p * rows * s.head_dim],
                       &max[p * rows], &sum[p * rows]});
  }
  const size_t stride = s.group * s.head_dim + 8, width = s.group * s.head_dim;
  Guarded<std::byte> dst(((s.tokens - 1) * stride + width) * SizeOf(dst_type), 8);
  kernels.attention_merge({out.data(), max.data(), sum.data(), parts, rows * s.head_dim, rows,
                           s.tokens, s.group, s.head_dim, dst.data(), stride, dst_type});
  std::vector<float> result(rows * s.head_dim);
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = Get(dst.data(), dst_type, i / width * stride + i % width);
  }
  return result;
}

// Textbook attention in double, with a bound on what float32 (and, where the kernel rounds queries
// and probabilities to the cache's bfloat16, that) may change. To first order:
//   a score   s = scale q.k errs by d = (u_q + (head_dim + 4) u) scale sum|q k|
//   a weight  p = e^(s - max) / sum errs by the factor 1 + 2 d + u_p + 2 e, e = 4 u for exp itself
//             plus u (|s| + |max|) for its argument
//   an output sum p v errs by that factor plus (context + 4) u for the sums, times sum p |v|
struct Reference {
  std::vector<double> exact, bound;  // [rows][head_dim]
};

Reference Exact(const Scene& scene, double operand_roundoff) {
  const Shape& s = scene.shape;
  const double u = 0x1p-24;
  Reference result;
  for (size_t row = 0; row < scene.rows(); ++row) {
    const float* q = &scene.q[row / s.group * scene.q_stride + row % s.group * s.head_dim];
    const int64_t end =
        std::min(s.context_end, s.first_position + static_cast<int64_t>(row / s.group) + 1);
    std::vector<double> scores(static_cast<size_t>(end));
    double max = -INFINITY, sum = 0, error = 0;
    for (size_t p = 0; p < scores.size(); ++p) {
      double magnitude = 0;
      for (size_t d = 0; d < s.head_dim; ++d) {
        const double product = static_cast<double>(q[d]) * scene.k[p * s.head_dim + d];
        scores[p] += product * scene.scale();
        magnitude += std::abs(product) * scene.scale();
      }
      max = std::max(max, scores[p]);
      const double depth = static_cast<double>(s.head_dim) + 4;
      error = std::max(error, (operand_roundoff + depth * u) * magnitude + u * std::abs(scores[p]));
    }
    for (double& score : scores) sum += score = std::exp(score - max);
    const double factor = 2 * error + operand_roundoff + 2 * u * (4 + std::abs(max)) +
                          (static_cast<double>(end) + 4) * u;
    for (size_t d = 0; d < s.head_dim; ++d) {
      double out = 0, magnitude = 0;
      for (size_t p = 0; p < scores.size(); ++p) {
        const double term = scores[p] / sum * scene.v[p * s.head_dim + d];
        out += term;
        magnitude += std::abs(term);
      }
      result.exact.push_back(out);
      result.bound.push_back(1.01 * factor * magnitude);
    }
  }
  return result;
}

// Only these paths multiply bfloat16 by bfloat16 in attention.
double OperandRoundoff(Isa isa, Dtype cache) {
  return isa >= Isa::kAvx512Bf16 && cache == Dtype::kBf16 ? UnitRoundoff(Dtype::kBf16) : 0;
}

void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0);
}

class AttentionTest : public ::testing::TestWithParam<Isa> {
 protected:
  const Table& kernels_ = TableFor(GetParam());

  void CheckWholeAndSplit(const Shape& shape) {
    SCOPED_TRACE(::testing::Message() << shape);
    const Scene scene(kernels_, shape);
    const Reference want = Exact(scene, OperandRoundoff(GetParam(), shape.dtype));
    std::vector<std::vector<int64_t>> cuttings = {{}};
    const auto block = static_cast<int64_t>(shape.block_tokens);
    if (shape.context_end > block) cuttings.push_back({block});
    if (shape.context_end > 4 * block) cuttings.push_back({block, 3 * block, 4 * block});
    for (const auto& cuts : cuttings) {
      const std::vector<float> got = RunParts(kernels_, scene, cuts);
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], want.exact[i], want.bound[i])
            << cuts.size() << " cuts, row " << i / shape.head_dim << ", " << i % shape.head_dim;
      }
    }
  }
};

TEST_P(AttentionTest, DecodeMatchesDoubleForEveryGroupAndHeadDim) {
  for (Dtype dtype : kDtypes) {
    for (size_t group = 1; group <= 16; ++group) {
      CheckWholeAndSplit({1, group, 64, 16, 2, 36, 37, dtype});
    }
    for (size_t head_dim = 8; head_dim <= 256; head_dim += 8) {
      CheckWholeAndSplit({1, 3, head_dim, 32, 1, 69, 70, dtype});
    }
  }
}

TEST_P(AttentionTest, ChunksMatchDoubleUnderTheCausalMask) {
  for (Dtype dtype : kDtypes) {
    for (int64_t first : {0, 1, 15, 16, 17, 100}) {
      for (size_t tokens : {1, 2, 7, 16, 33, 64}) {
        CheckWholeAndSplit(
            {tokens, 1, 24, 16, 3, first, first + static_cast<int64_t>(tokens), dtype});
      }
    }
    CheckWholeAndSplit({16, 4, 128, 64, 2, 500, 516, dtype});
    CheckWholeAndSplit({4, 16, 80, 48, 1, 3, 7, dtype});
  }
}

// What lies behind the query is not seen even where the range and the cache hold it.
TEST_P(AttentionTest, IgnoresTokensAfterTheQuery) {
  for (Dtype dtype : kDtypes) {
    CheckWholeAndSplit({5, 2, 32, 16, 1, 10, 90, dtype});
  }
}

// Slots are recycled as they are: what an earlier request left behind the context, an overflow's
// infinities and NaN among it, must reach no row, through keys or values.
TEST_P(AttentionTest, IgnoresWhatLiesInSlotsBehindTheContext) {
  for (Dtype dtype : kDtypes) {
    for (const Shape& shape :
         {Shape{1, 4, 128, 16, 2, 36, 37, dtype}, Shape{1, 3, 40, 64, 1, 0, 1, dtype},
          Shape{1, 1, 64, 32, 2, 160, 161, dtype}, Shape{5, 2, 24, 16, 2, 130, 135, dtype},
          Shape{1, 2, 72, 256, 1, 129, 130, dtype}, Shape{16, 4, 64, 48, 1, 47, 63, dtype}}) {
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
TEST_P(AttentionTest, IgnoresWhatLaterTokensHold) {
  constexpr size_t kTokens = 7, kGroup = 3, kHeadDim = 72;
  for (Dtype dtype : kDtypes) {
    for (int64_t first : {0, 13, 125, 250}) {
      SCOPED_TRACE(::testing::Message() << Name(dtype) << ", first " << first);
      Scene scene(kernels_, {kTokens, kGroup, kHeadDim, 32, 2, first, first + 7, dtype});
      const std::vector<float> want = RunParts(kernels_, scene, {});
      for (int64_t token = 6; token > 0; --token) {
        scene.FillSlotsFrom(first + token, token % 2 == 0 ? NAN : INFINITY);
        std::vector<float> got = RunParts(kernels_, scene, {});
        const auto seen = static_cast<size_t>(token) * kGroup * kHeadDim;
        ExpectSameBits({got.begin(), got.begin() + static_cast<ptrdiff_t>(seen)},
                       {want.begin(), want.begin() + static_cast<ptrdiff_t>(seen)});
        EXPECT_FALSE(std::isfinite(got[seen])) << "the planted value must show where it is seen";
      }
    }
  }
}

TEST_P(AttentionTest, RowsThatSeeNothingAreEmptyPartsAndZeroWhenMerged) {
  for (Dtype dtype : kDtypes) {
    const Scene scene(kernels_, {3, 2, 16, 16, 1, 15, 32, dtype});
    std::vector<float> out(6 * 16, 1), max(6, 1), sum(6, 1);
    AttentionArgs args{scene.q.data(),
                       scene.q_stride,
                       3,
                       2,
                       16,
                       15,
                       16,
                       32,
                       scene.cache.data(),
                       scene.block_bytes,
                       scene.table.data(),
                       16,
                       0,
                       1,
                       dtype,
                       1.0f,
                       out.data(),
                       max.data(),
                       sum.data()};
    kernels_.attention(args);  // the first token, at position 15, sees nothing of [16, 32)
    for (size_t row = 0; row < 2; ++row) {
      EXPECT_EQ(max[row], -INFINITY);
      EXPECT_EQ(sum[row], 0);
      for (size_t d = 0; d < 16; ++d) EXPECT_EQ(out[row * 16 + d], 0);
    }
    EXPECT_GE(sum[2], 1);
    std::vector<float> dst(6 * 16, 7);
    kernels_.attention_merge(
        {out.data(), max.data(), sum.data(), 1, 6 * 16, 6, 3, 2, 16, dst.data(), 32, Dtype::kF32});
    for (size_t i = 0; i < 32; ++i) EXPECT_EQ(dst[i], 0);
    for (size_t i = 32; i < dst.size(); ++i) EXPECT_TRUE(std::isfinite(dst[i]));
  }
}

// Scores far apart: the running maximum must rescale without overflow.
TEST_P(AttentionTest, SurvivesExtremeScores) {
  for (Dtype dtype : kDtypes) {
    Scene scene(kernels_, {2, 2, 64, 16, 1, 98, 100, dtype});
    for (float& value : scene.q) value *= 3000;
    for (float value : RunParts(kernels_, scene, {16, 64})) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST_P(AttentionTest, MergeRoundsToBf16) {
  const Scene scene(kernels_, {3, 2, 40, 16, 1, 47, 50, Dtype::kF32});
  const std::vector<float> f32 = RunParts(kernels_, scene, {16});
  const std::vector<float> bf16 = RunParts(kernels_, scene, {16}, Dtype::kBf16);
  for (size_t i = 0; i < f32.size(); ++i) EXPECT_EQ(bf16[i], ToFloat(ToBf16(f32[i])));
}

TEST_P(AttentionTest, KvWriteTouchesItsSlotAlone) {
  constexpr size_t kHeadDim = 24, kTokens = 32, kHeads = 3, kSlot = 13, kHead = 1;
  const std::vector<float> k = Normal(kHeadDim, 1), v = Normal(kHeadDim, 2);
  for (Dtype dtype : kDtypes) {
    const size_t bytes = KvBlockBytes(dtype, kTokens, kHeads, kHeadDim);
    Guarded<std::byte> got(bytes, 64), want(bytes, 64);
    std::memset(got.data(), 0, bytes);
    std::memset(want.data(), 0, bytes);
    kernels_.kv_write(
        {got.data(), k.data(), v.data(), kSlot, kHead, kHeads, kTokens, kHeadDim, dtype});
    const size_t pair = dtype == Dtype::kBf16 ? 2 : 1, head = kTokens * kHeadDim;
    for (size_t d = 0; d < kHeadDim; ++d) {  // the layouts of kernels.h
      Set(want.data(), dtype, kHead * head + (d / pair * kTokens + kSlot) * pair + d % pair, k[d]);
      Set(want.data(), dtype,
          (kHeads + kHead) * head + (kSlot / pair * kHeadDim + d) * pair + kSlot % pair, v[d]);
    }
    EXPECT_EQ(std::memcmp(got.data(), want.data(), bytes), 0) << Name(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, AttentionTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
