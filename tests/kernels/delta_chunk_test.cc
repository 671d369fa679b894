#include <algorithm>

#include "tests/kernels/row.h"

namespace pinion::kernels::testing {
namespace {

struct DeltaChunkShape {
  size_t tokens, key_dim, value_dim;
};

// Any number of tokens around a tile's rows and a vector's lanes, and a full chunk; columns around
// vectors, tiles and panels; a real shape.
constexpr DeltaChunkShape kDeltaChunkShapes[] = {
    {1, 16, 16}, {2, 8, 1},    {5, 24, 7},   {6, 16, 8},   {7, 24, 17},    {13, 8, 33},
    {31, 8, 31}, {32, 24, 64}, {33, 16, 65}, {63, 24, 96}, {64, 128, 128}, {64, 16, 200}};

// Decays of a chunk: close to 1, close to 0, some of them 0, and so small that their products leave
// the range of float32 within a few tokens.
enum class Decays { kNearOne, kNearZero, kZeros, kVanishing };
constexpr Decays kDecays[] = {Decays::kNearOne, Decays::kNearZero, Decays::kZeros,
                              Decays::kVanishing};

float DecayOf(Decays kind, size_t token) {
  const float part = static_cast<float>(token % 7) / 7;
  switch (kind) {
    case Decays::kNearOne:
      return 1 - 1e-4f * part;
    case Decays::kNearZero:
      return 1e-3f + 0.02f * part;
    case Decays::kZeros:
      return token % 5 == 3 ? 0 : 0.8f + 0.2f * part;
    case Decays::kVanishing:
      return 1e-12f;
  }
  return 1;
}

constexpr size_t kValueGap = 3;  // floats between rows of v

// One decay a token; one for each channel of a key; the same, but channels decay in different ways.
enum class Channels { kTogether, kEach, kMixed };
constexpr Channels kChannels[] = {Channels::kTogether, Channels::kEach, Channels::kMixed};

struct DeltaChunkCase {
  DeltaChunkCase(const DeltaChunkShape& shape, Decays decays, Channels channels)
      : shape(shape),
        v_stride(shape.value_dim + kValueGap),
        q(Normal(shape.tokens * shape.key_dim, 1)),
        k(Normal(shape.tokens * shape.key_dim, 2)),
        v(Normal(shape.tokens * v_stride, 3)),
        before(Normal(shape.key_dim * shape.value_dim, 4)) {
    for (size_t t = 0; t < shape.tokens; ++t) {
      double squares = 0;
      for (size_t i = 0; i < shape.key_dim; ++i)
        squares += double{k[t * shape.key_dim + i]} * k[t * shape.key_dim + i];
      for (size_t i = 0; i < shape.key_dim; ++i)
        k[t * shape.key_dim + i] /= static_cast<float>(std::sqrt(squares));
      decay.push_back(DecayOf(decays, t));
      for (size_t i = 0; channels != Channels::kTogether && i < shape.key_dim; ++i) {
        const size_t kind = static_cast<size_t>(decays) + (channels == Channels::kMixed ? i : 0);
        each.push_back(i % 9 == 8 ? 1 : DecayOf(kDecays[kind % std::size(kDecays)], t + 3 * i));
      }
      beta.push_back(0.05f + 0.95f * static_cast<float>(t % 4) / 3);
    }
  }
  double Key(size_t t, size_t i) const { return k[t * shape.key_dim + i]; }
  double Query(size_t t, size_t i) const { return q[t * shape.key_dim + i]; }
  double DecayAt(size_t t, size_t i) const {
    return each.empty() ? decay[t] : each[t * shape.key_dim + i];
  }

  const DeltaChunkShape shape;
  const size_t v_stride;
  std::vector<float> q, k, v;
  const std::vector<float> before;
  std::vector<float> decay, each, beta;
};

// The part that all columns share: the sums over channels of D(t, s) x_t k_s, with x the keys and
// the queries, and those of magnitudes, [t][s]; D(tokens, s) k_s, [s][key_dim].
struct PairSums {
  explicit PairSums(const DeltaChunkCase& of) {
    const auto [tokens, key_dim, value_dim] = of.shape;
    for (size_t t = 0; t < tokens; ++t) {
      for (auto& row : reach)
        for (size_t i = 0; i < key_dim; ++i) row[i] *= of.DecayAt(t, i);
      reach.emplace_back();
      for (size_t i = 0; i < key_dim; ++i) reach.back().push_back(of.Key(t, i));
      for (auto* sums : {&known, &known_magnitude, &seen, &seen_magnitude})
        sums->emplace_back(t + 1, 0);
      for (size_t s = 0; s <= t; ++s)
        for (size_t i = 0; i < key_dim; ++i) {
          const double by_key = of.Key(t, i) * reach[s][i], by_query = of.Query(t, i) * reach[s][i];
          known[t][s] += by_key, known_magnitude[t][s] += std::abs(by_key);
          seen[t][s] += by_query, seen_magnitude[t][s] += std::abs(by_query);
        }
    }
  }
  std::vector<std::vector<double>> known, known_magnitude, seen, seen_magnitude, reach;
};

// The sums that a chunk computes, each with its error: a sum of n products errs by its magnitude
// times n u, and D(t, s) by t - s roundings. So every term has at most key_dim + 2 tokens + 8
// roundings. An error of u_s reaches what follows by the exact factor of u_s; what the bound leaves
// out is of second order.
struct ColumnBounds {
  ColumnBounds(const DeltaChunkCase& of, const PairSums& pairs, size_t column);
  std::vector<double> out, out_error, state, state_error;
};

ColumnBounds::ColumnBounds(const DeltaChunkCase& of, const PairSums& pairs, size_t column) {
  const auto [tokens, key_dim, value_dim] = of.shape;
  const double u = static_cast<double>(key_dim + 2 * tokens + 8) * kU;
  std::vector<double> change, change_error;
  std::vector<double> held(key_dim), start(key_dim);  // S_t and |D(t, 0) S_0|
  for (size_t i = 0; i < key_dim; ++i) {
    held[i] = of.before[i * value_dim + column];
    start[i] = std::abs(held[i]);
  }
  for (size_t t = 0; t < tokens; ++t) {
    const double beta = of.beta[t];
    const double value = of.v[t * of.v_stride + column];
    double known = 0, error = u * std::abs(value), sum = 0, sum_error = 0;
    for (size_t i = 0; i < key_dim; ++i) {
      held[i] *= of.DecayAt(t, i), start[i] *= of.DecayAt(t, i);
      known += of.Key(t, i) * held[i];
      error += u * std::abs(of.Key(t, i)) * start[i];
      sum_error += u * std::abs(of.Query(t, i)) * start[i];
    }
    for (size_t s = 0; s < t; ++s)
      error += u * pairs.known_magnitude[t][s] * std::abs(change[s]) +
               std::abs(pairs.known[t][s]) * change_error[s];
    change.push_back(beta * (value - known));
    change_error.push_back(beta * error);
    for (size_t s = 0; s <= t; ++s)
      sum_error += u * pairs.seen_magnitude[t][s] * std::abs(change[s]) +
                   std::abs(pairs.seen[t][s]) * change_error[s];
    for (size_t i = 0; i < key_dim; ++i) {
      held[i] += of.Key(t, i) * change[t];
      sum += of.Query(t, i) * held[i];
    }
    out.push_back(sum);
    out_error.push_back(sum_error);
  }
  for (size_t i = 0; i < key_dim; ++i) {
    double error = u * start[i];
    for (size_t s = 0; s < tokens; ++s)
      error += std::abs(pairs.reach[s][i]) * (u * std::abs(change[s]) + change_error[s]);
    state.push_back(held[i]);
    state_error.push_back(error);
  }
}

class DeltaChunkTest : public ::testing::TestWithParam<Isa> {};

constexpr double kSecondOrder = 1.01, kSubnormal = 0x1p-110;

void CheckDeltaChunk(const Table& kernels, const DeltaChunkShape& shape, Decays decays,
                     Channels channels) {
  const DeltaChunkCase of(shape, decays, channels);
  const Row q(of.q), k(of.k), decay(of.decay), each(of.each), beta(of.beta);
  const bool by_channel = channels != Channels::kTogether;
  const Row v({of.v.begin(), of.v.end() - kValueGap});
  Row state(of.before);
  Guarded<float> out(shape.tokens * shape.value_dim);
  Guarded<float> scratch(DeltaChunkFloats(shape.key_dim, by_channel), 64);
  std::fill(scratch.begin(), scratch.end(), std::nanf(""));  // nothing is read of what was there
  kernels.delta_chunk({.state = state.data(),
                       .q = q.data(),
                       .k = k.data(),
                       .v = v.data(),
                       .v_stride = of.v_stride,
                       .tokens = shape.tokens,
                       .key_dim = shape.key_dim,
                       .value_dim = shape.value_dim,
                       .decay = by_channel ? nullptr : decay.data(),
                       .beta = beta.data(),
                       .out = out.data(),
                       .scratch = scratch.data(),
                       .decays = by_channel ? each.data() : nullptr});
  const PairSums pairs(of);
  for (size_t column = 0; column < shape.value_dim; ++column) {
    const ColumnBounds want(of, pairs, column);
    for (size_t t = 0; t < shape.tokens; ++t)
      ASSERT_NEAR(out[t * shape.value_dim + column], want.out[t],
                  want.out_error[t] * kSecondOrder + kSubnormal)
          << "token " << t << ", column " << column;
    for (size_t i = 0; i < shape.key_dim; ++i)
      ASSERT_NEAR(state[i * shape.value_dim + column], want.state[i],
                  want.state_error[i] * kSecondOrder + kSubnormal)
          << "row " << i << ", column " << column;
  }
}

TEST_P(DeltaChunkTest, IsWithinTheSummationBoundOfTheRecurrence) {
  for (const DeltaChunkShape& shape : kDeltaChunkShapes)
    for (const Decays decays : kDecays)
      for (const Channels channels : kChannels) {
        SCOPED_TRACE(::testing::Message()
                     << shape.tokens << " tokens, " << shape.key_dim << " x " << shape.value_dim
                     << ", decays " << static_cast<int>(decays) << ", channels "
                     << static_cast<int>(channels));
        ASSERT_NO_FATAL_FAILURE(CheckDeltaChunk(TableFor(GetParam()), shape, decays, channels));
      }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, DeltaChunkTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
