#include <algorithm>
#include <cstdlib>

#include "tests/kernels/kv_block.h"
#include "tests/kernels/testing.h"

namespace pinion::kernels::testing {
namespace {

struct Shape {
  size_t tokens, group, key_dim, value_dim, block_tokens;
  int64_t first_position, context_end;
  KvDtype dtype;
  int64_t window = kNoWindow;
  float soft_cap = 0;
  bool latent = false, sinks = false;
};

Shape Plain(size_t tokens, size_t group, size_t head_dim, size_t block_tokens,
            int64_t first_position, int64_t context_end, KvDtype dtype) {
  return {tokens, group, head_dim, head_dim, block_tokens, first_position, context_end, dtype};
}

Shape Latent(size_t tokens, size_t group, size_t key_dim, size_t value_dim, size_t block_tokens,
             int64_t first_position, KvDtype dtype) {
  Shape shape{tokens,       group,          key_dim,        value_dim,
              block_tokens, first_position, first_position, dtype};
  shape.context_end += static_cast<int64_t>(tokens);
  shape.latent = true;
  return shape;
}

std::ostream& operator<<(std::ostream& os, const Shape& s) {
  return os << s.tokens << " tokens, group " << s.group << ", dims " << s.key_dim << " "
            << s.value_dim << ", block " << s.block_tokens << ", first " << s.first_position
            << ", end " << s.context_end << ", " << Name(s.dtype) << ", window " << s.window
            << ", cap " << s.soft_cap << (s.latent ? ", latent" : "") << (s.sinks ? ", sinks" : "");
}

// A cache filled through kv_write, blocks in shuffled order, and queries. Its planes have gaps
// between their blocks, as where another head's lie there; they hold NaN.
struct Scene {
  Shape shape;
  size_t blocks, key_stride, value_stride, q_stride;
  Guarded<std::byte> keys, values;
  std::vector<int32_t> table;
  std::vector<float> q, k, v, sinks;  // k: [context_end][key_dim], v: [context_end][value_dim]
  std::vector<const float*> q_rows;
  std::vector<int64_t> positions;
  std::vector<float> value_scales;  // [context_end]

  Scene(const Table& kernels, const Shape& s)
      : shape(s),
        blocks((static_cast<size_t>(s.context_end) + s.block_tokens - 1) / s.block_tokens),
        key_stride(KvPlaneBlockBytes(s.dtype, s.block_tokens, s.key_dim) + 64),
        value_stride(KvPlaneBlockBytes(s.dtype, s.block_tokens, s.value_dim) + 128),
        q_stride(s.group * s.key_dim + 24),
        keys(blocks * key_stride - 64, 64),
        values(s.latent ? 64 : blocks * value_stride - 128, 64),
        table(blocks),
        q(Normal(s.tokens * q_stride, 3)),
        k(Normal(static_cast<size_t>(s.context_end) * s.key_dim, 4)),
        v(Normal(static_cast<size_t>(s.context_end) * s.value_dim, 5)),
        sinks(Normal(s.group, 7)) {
    std::memset(keys.data(), 0xff, keys.size());
    std::memset(values.data(), 0xff, values.size());
    for (size_t i = 0; i < blocks; ++i) table[i] = static_cast<int32_t>(i);
    std::shuffle(table.begin(), table.end(), std::mt19937(6));
    for (size_t p = 0; p < static_cast<size_t>(s.context_end); ++p) {
      if (s.latent) std::copy_n(&k[p * s.key_dim], s.value_dim, &v[p * s.value_dim]);
      Write(kernels, p, &k[p * s.key_dim], &v[p * s.value_dim]);
    }
    for (size_t p = 0; p < static_cast<size_t>(s.context_end); ++p) ReadBack(p);
    for (size_t t = 0; t < s.tokens; ++t) {
      q_rows.push_back(&q[t * q_stride]);
      positions.push_back(s.first_position + static_cast<int64_t>(t));
    }
  }

  void Write(const Table& kernels, size_t position, const float* key, const float* value) {
    const auto block = static_cast<size_t>(table[position / shape.block_tokens]);
    kernels.kv_write({keys.data() + block * key_stride,
                      shape.latent ? nullptr : values.data() + block * value_stride, key, value,
                      position % shape.block_tokens, shape.block_tokens, shape.key_dim,
                      shape.value_dim, shape.dtype});
  }

  void FillSlots(int64_t begin, int64_t end, float value) {
    const std::vector<float> filler(std::max(shape.key_dim, shape.value_dim), value);
    for (int64_t p = begin; p < end; ++p) {
      Write(TableFor(Isa::kScalar), static_cast<size_t>(p), filler.data(), filler.data());
    }
  }
  // Overwrites every slot of the last blocks from position `begin` on.
  void FillSlotsFrom(int64_t begin, float value) {
    FillSlots(begin, static_cast<int64_t>(blocks * shape.block_tokens), value);
  }

  size_t rows() const { return shape.tokens * shape.group; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(shape.key_dim)); }

  AttentionArgs Args(int64_t begin, int64_t end, float* out, float* max, float* sum) const {
    const Shape& s = shape;
    return {.q = q_rows.data(),
            .positions = positions.data(),
            .tokens = s.tokens,
            .group = s.group,
            .key_dim = s.key_dim,
            .value_dim = s.value_dim,
            .window = s.window,
            .context_begin = begin,
            .context_end = end,
            .keys = keys.data(),
            .values = s.latent ? nullptr : values.data(),
            .key_stride = key_stride,
            .value_stride = value_stride,
            .block_table = table.data(),
            .block_tokens = s.block_tokens,
            .dtype = s.dtype,
            .scale = scale(),
            .soft_cap = s.soft_cap,
            .out = out,
            .max = max,
            .sum = sum};
  }

  // What the cache holds of a token.
  void ReadBack(size_t position) {
    const auto block = static_cast<size_t>(table[position / shape.block_tokens]);
    const size_t slot = position % shape.block_tokens;
    const KvBlock key{keys.data() + block * key_stride, shape.dtype, shape.block_tokens,
                      shape.key_dim};
    const KvBlock value{values.data() + block * value_stride, shape.dtype, shape.block_tokens,
                        shape.value_dim};
    for (size_t d = 0; d < shape.key_dim; ++d) k[position * shape.key_dim + d] = key.Key(slot, d);
    value_scales.push_back(IsScaled(shape.dtype) ? (shape.latent ? key : value).Scale(slot) : 1);
    for (size_t d = 0; d < shape.value_dim; ++d)
      v[position * shape.value_dim + d] = shape.latent ? key.Key(slot, d) : value.Value(slot, d);
  }
};

// Splits the context at `cuts` (multiples of block_tokens), runs the parts and merges them.
std::vector<float> RunParts(const Table& kernels, const Scene& scene, std::vector<int64_t> cuts,
                            Dtype dst_type = Dtype::kF32) {
  const Shape& s = scene.shape;
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(s.context_end);
  const size_t count = cuts.size() - 1, rows = scene.rows();
  Guarded<float> out(count * rows * s.value_dim, 64), max(count * rows), sum(count * rows);
  std::vector<AttentionPart> parts;
  for (size_t p = 0; p < count; ++p) {
    const AttentionArgs args = scene.Args(cuts[p], cuts[p + 1], &out[p * rows * s.value_dim],
                                          &max[p * rows], &sum[p * rows]);
    kernels.attention(args);
    parts.push_back({args.out, args.max, args.sum});
  }
  const size_t stride = s.group * s.value_dim + 8, width = s.group * s.value_dim;
  Guarded<std::byte> dst(((s.tokens - 1) * stride + width) * SizeOf(dst_type), 8);
  kernels.attention_merge({parts.data(), count, s.tokens, s.group, s.value_dim,
                           s.sinks ? scene.sinks.data() : nullptr, dst.data(), stride, dst_type});
  std::vector<float> result(rows * s.value_dim);
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = Get(dst.data(), dst_type, i / width * stride + i % width);
  }
  return result;
}

// Textbook attention in double, with a bound on what float32 (and, where the kernel rounds queries
// and probabilities to the cache's bfloat16, that) may change. To first order:
//   a score   s = scale q.k errs by d = (u_q + (key_dim + 4) u) scale sum|q k|; a soft cap does not
//             enlarge that (its slope is at most 1) and adds 8 u of the cap
//   a weight  p = e^(s - max) / sum errs by the factor 1 + 2 d + u_p + 2 e, e = 4 u for exp itself
//             plus u (|s| + |max|) for its argument
//   an output sum p v errs by that factor plus (context + 4) u for the sums, times sum p |v|
// Where the cache holds int8, a row of queries may be rounded by half a step of its largest by 127
// or 8191; and the weights of a strip times the values' scales by half a step of the largest weight
// times the largest scale, by 8191.
struct Reference {
  std::vector<double> exact, bound;  // [rows][value_dim]
};

struct Roundoff {
  double relative = 0;                  // of queries and weights
  double of_query = 0, of_weights = 0;  // of the largest
};

// One row's scores, their largest error on top.
std::vector<double> ExactScores(const Scene& scene, size_t row, size_t begin, size_t end,
                                Roundoff roundoff, double& error) {
  const Shape& s = scene.shape;
  const float* q = scene.q_rows[row / s.group] + row % s.group * s.key_dim;
  const double u = 0x1p-24, cap = s.soft_cap;
  double largest = 0;
  for (size_t d = 0; d < s.key_dim; ++d) largest = std::max<double>(largest, std::abs(q[d]));
  std::vector<double> scores;
  for (size_t p = begin; p < end; ++p) {
    double magnitude = 0, score = 0, keys = 0;
    for (size_t d = 0; d < s.key_dim; ++d) {
      keys += std::abs(scene.k[p * s.key_dim + d]) * static_cast<double>(scene.scale());
      const double product = static_cast<double>(q[d]) * scene.k[p * s.key_dim + d];
      score += product * scene.scale();
      magnitude += std::abs(product) * scene.scale();
    }
    const double depth = static_cast<double>(s.key_dim) + 4;
    if (cap > 0) score = cap * std::tanh(score / cap);
    scores.push_back(score);
    error =
        std::max(error, (roundoff.relative + depth * u) * magnitude +
                            roundoff.of_query * largest * keys + u * std::abs(score) + 8 * u * cap);
  }
  return scores;
}

Reference Exact(const Scene& scene, Roundoff roundoff) {
  const Shape& s = scene.shape;
  const double u = 0x1p-24;
  Reference result;
  for (size_t row = 0; row < scene.rows(); ++row) {
    const int64_t position = scene.positions[row / s.group];
    const auto begin = static_cast<size_t>(std::max<int64_t>(0, position - s.window + 1));
    const auto end = static_cast<size_t>(std::min(s.context_end, position + 1));
    double error = 0;
    std::vector<double> weights = ExactScores(scene, row, begin, end, roundoff, error);
    const double sink = s.sinks ? static_cast<double>(scene.sinks[row % s.group]) : -INFINITY;
    const double max = std::max(sink, *std::max_element(weights.begin(), weights.end()));
    double sum = std::exp(sink - max);
    for (double& weight : weights) sum += weight = std::exp(weight - max);
    const double largest = *std::max_element(weights.begin(), weights.end()) / sum *
                           *std::max_element(&scene.value_scales[begin], &scene.value_scales[end]);
    const double factor = 2 * error + roundoff.relative + 2 * u * (4 + std::abs(max)) +
                          (static_cast<double>(end - begin) + 4) * u;
    for (size_t d = 0; d < s.value_dim; ++d) {
      double out = 0, magnitude = 0, codes = 0;
      for (size_t p = begin; p < end; ++p) {
        codes +=
            std::abs(scene.v[p * s.value_dim + d]) / static_cast<double>(scene.value_scales[p]);
        const double term = weights[p - begin] / sum * scene.v[p * s.value_dim + d];
        out += term;
        magnitude += std::abs(term);
      }
      result.exact.push_back(out);
      result.bound.push_back(1.01 * (factor * magnitude + roundoff.of_weights * largest * codes));
    }
  }
  return result;
}

// Only these paths multiply bfloat16 by bfloat16 in attention.
Roundoff OperandRoundoff(Isa isa, KvDtype cache) {
  if (cache == KvDtype::kI8 && isa == Isa::kScalar) return {};
  if (cache == KvDtype::kI8)
    return {.of_query = 0.5 / (isa >= Isa::kAvx512Bf16 ? 127 : 8191), .of_weights = 0.5 / 8191};
  const bool rounds = cache == KvDtype::kBf16 || IsScaled(cache);
  return {.relative = isa >= Isa::kAvx512Bf16 && rounds ? UnitRoundoff(Dtype::kBf16) : 0};
}

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

// An overflow before the window reaches no row that does not see it, and blocks wholly before it
// need not even have a number.
TEST_P(AttentionTest, IgnoresWhatTokensBeforeTheWindowHold) {
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

// What lies behind the query is not seen even where the range and the cache hold it.
TEST_P(AttentionTest, IgnoresTokensAfterTheQuery) {
  for (KvDtype dtype : kKvDtypes) {
    CheckWholeAndSplit(Plain(5, 2, 32, 16, 10, 90, dtype));
  }
}

// Slots are recycled as they are: what an earlier request left behind the context, an overflow's
// infinities and NaN among it, must reach no row, through keys or values.
TEST_P(AttentionTest, IgnoresWhatLiesInSlotsBehindTheContext) {
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
TEST_P(AttentionTest, IgnoresWhatLaterTokensHold) {
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
        EXPECT_FALSE(std::isfinite(got[seen])) << "the planted value must show where it is seen";
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
