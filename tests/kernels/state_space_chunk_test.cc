#include <algorithm>

#include "tests/kernels/row.h"

namespace pinion::kernels::testing {
namespace {

struct StateChunkShape {
  size_t tokens, state_dim, head_dim;
};

// Any number of tokens around a tile's rows and a vector's lanes, and a full chunk; columns around
// vectors and tiles; states of any number of rows; real shapes.
constexpr StateChunkShape kStateChunkShapes[] = {
    {1, 16, 16},  {2, 8, 1},    {4, 1, 64},    {5, 24, 7},    {6, 16, 8},
    {7, 5, 17},   {13, 8, 33},  {17, 16, 40},  {31, 8, 31},   {32, 24, 64},
    {33, 16, 65}, {63, 24, 96}, {64, 128, 80}, {64, 256, 64}, {64, 13, 200}};

// Decays of a chunk: 1, close to 1, close to 0, some of them 0, all of them 0, and so small that
// their products leave the range of float32 within a few tokens.
enum class StateDecays { kOne, kNearOne, kNearZero, kSomeZero, kZero, kVanishing };
constexpr StateDecays kStateDecays[] = {StateDecays::kOne,      StateDecays::kNearOne,
                                        StateDecays::kNearZero, StateDecays::kSomeZero,
                                        StateDecays::kZero,     StateDecays::kVanishing};

float StateDecayOf(StateDecays kind, size_t token) {
  const float part = static_cast<float>(token % 7) / 7;
  switch (kind) {
    case StateDecays::kOne:
      return 1;
    case StateDecays::kNearOne:
      return 1 - 1e-4f * part;
    case StateDecays::kNearZero:
      return 1e-3f + 0.02f * part;
    case StateDecays::kSomeZero:
      return token % 5 == 3 ? 0 : 0.8f + 0.2f * part;
    case StateDecays::kZero:
      return 0;
    case StateDecays::kVanishing:
      return 1e-12f;
  }
  return 1;
}

constexpr float kChunkSkip = -0.7f;
constexpr size_t kChunkGap = 5;  // floats between rows

struct StateChunkCase {
  StateChunkCase(const StateChunkShape& shape, StateDecays decays)
      : shape(shape),
        stride(std::max(shape.state_dim, shape.head_dim) + kChunkGap),
        x(Normal(shape.tokens * stride, 1)),
        b(Normal(shape.tokens * stride, 2)),
        c(Normal(shape.tokens * stride, 3)),
        before(Normal(shape.state_dim * shape.head_dim, 4)) {
    for (size_t t = 0; t < shape.tokens; ++t) {
      decay.push_back(StateDecayOf(decays, t));
      dt.push_back(t % 11 == 10 ? 0 : 0.01f + 0.7f * static_cast<float>(t % 3));
    }
  }
  // Rows of x, b or c that end where they are read for the last time.
  Row Ending(const std::vector<float>& rows, size_t width) const {
    return Row({rows.begin(), rows.end() - static_cast<ptrdiff_t>(stride - width)});
  }

  const StateChunkShape shape;
  const size_t stride;
  const std::vector<float> x, b, c, before;
  std::vector<float> decay, dt;
};

class StateSpaceChunkTest : public ::testing::TestWithParam<Isa> {
 protected:
  // Nothing is read of what was in `scores` or in the scratch.
  void Run(const StateChunkCase& of, const float* x, float* state, float* out,
           size_t out_stride) const {
    const Row b = of.Ending(of.b, of.shape.state_dim), c = of.Ending(of.c, of.shape.state_dim);
    const Row decay(of.decay), dt(of.dt);
    constexpr size_t kScoresStride = kStateChunk + 16;
    Guarded<float> scores(of.shape.tokens * kScoresStride, 64);
    Guarded<float> scratch(StateChunkFloats(of.shape.state_dim), 64);
    std::fill(scores.begin(), scores.end(), std::nanf(""));
    std::fill(scratch.begin(), scratch.end(), std::nanf(""));
    const Table& kernels = TableFor(GetParam());
    kernels.state_space_scores({.b = b.data(),
                                .c = c.data(),
                                .stride = of.stride,
                                .tokens = of.shape.tokens,
                                .state_dim = of.shape.state_dim,
                                .scores = scores.data(),
                                .scores_stride = kScoresStride,
                                .scratch = scratch.data()});
    std::fill(scratch.begin(), scratch.end(), std::nanf(""));
    kernels.state_space_chunk({.state = state,
                               .x = x,
                               .b = b.data(),
                               .c = c.data(),
                               .stride = of.stride,
                               .tokens = of.shape.tokens,
                               .state_dim = of.shape.state_dim,
                               .head_dim = of.shape.head_dim,
                               .scores = scores.data(),
                               .scores_stride = kScoresStride,
                               .decay = decay.data(),
                               .dt = dt.data(),
                               .skip = kChunkSkip,
                               .out = out,
                               .out_stride = out_stride,
                               .scratch = scratch.data()});
  }
};

constexpr double kBelowNormal = 0x1p-110;  // what is lost with factors that are not normal numbers

// The recurrence in double for one column, with the error of every sum. A term is a product of at
// most state_dim + tokens summands' sum, of a decay over at most `tokens` tokens, and of three
// factors more; each is a rounding of the term's magnitude, which `weight` sums up.
void CheckColumn(const StateChunkCase& of, size_t column, const float* state, const float* out) {
  const auto [tokens, state_dim, head_dim] = of.shape;
  const double u = static_cast<double>(state_dim + 2 * tokens + 8) * kU;
  std::vector<double> cell(state_dim), weight(state_dim), added(tokens);
  for (size_t i = 0; i < state_dim; ++i) {
    cell[i] = of.before[i * head_dim + column];
    weight[i] = std::abs(cell[i]);
  }
  for (size_t t = 0; t < tokens; ++t) {
    const double x = of.x[t * of.stride + column];
    double want = kChunkSkip * x, error = u * std::abs(want);
    for (size_t i = 0; i < state_dim; ++i) {
      const double term = double{of.dt[t]} * x * of.b[t * of.stride + i];
      const double c = of.c[t * of.stride + i];
      cell[i] = of.decay[t] * cell[i] + term;
      weight[i] = of.decay[t] * weight[i] + std::abs(term);
      want += c * cell[i];
      error += u * std::abs(c) * weight[i];
    }
    ASSERT_NEAR(out[t * head_dim + column], want, error + kBelowNormal)
        << "token " << t << ", column " << column;
  }
  for (size_t i = 0; i < state_dim; ++i)
    ASSERT_NEAR(state[i * head_dim + column], cell[i], u * weight[i] + kBelowNormal)
        << "row " << i << ", column " << column;
}

TEST_P(StateSpaceChunkTest, IsWithinTheSummationBoundOfTheRecurrence) {
  for (const StateChunkShape& shape : kStateChunkShapes) {
    for (const StateDecays decays : kStateDecays) {
      SCOPED_TRACE(::testing::Message()
                   << shape.tokens << " tokens, " << shape.state_dim << " x " << shape.head_dim
                   << ", decays " << static_cast<int>(decays));
      const StateChunkCase of(shape, decays);
      const Row x = of.Ending(of.x, shape.head_dim);
      Row state(of.before);
      Guarded<float> out(shape.tokens * shape.head_dim);
      Run(of, x.data(), state.data(), out.data(), shape.head_dim);
      for (size_t column = 0; column < shape.head_dim; ++column)
        ASSERT_NO_FATAL_FAILURE(CheckColumn(of, column, state.data(), out.data()));
    }
  }
}

TEST_P(StateSpaceChunkTest, MayWriteOverItsInput) {
  for (const StateChunkShape& shape : kStateChunkShapes) {
    const StateChunkCase of(shape, StateDecays::kNearOne);
    std::vector<float> state = of.before, state_apart = of.before;
    std::vector<float> x = of.x, apart(shape.tokens * of.stride);
    Run(of, of.x.data(), state_apart.data(), apart.data(), of.stride);
    Run(of, x.data(), state.data(), x.data(), of.stride);
    EXPECT_EQ(state, state_apart);
    for (size_t t = 0; t < shape.tokens; ++t)
      for (size_t i = 0; i < of.stride; ++i)
        ASSERT_EQ(x[t * of.stride + i],
                  i < shape.head_dim ? apart[t * of.stride + i] : of.x[t * of.stride + i])
            << "token " << t << ", float " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, StateSpaceChunkTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
