#include <algorithm>

#include "tests/kernels/row.h"

namespace pinion::kernels::testing {
namespace {

// Tokens, one after the other: any number of them, several at a time or not, state sizes, widths on
// both sides of every vector edge and of several vectors.
struct StateSpaceShape {
  size_t tokens, state_dim, head_dim;
};

constexpr float kStateSkip = 1.3f;
constexpr size_t kRowGap = 5;  // floats between rows

// The inputs of a call, and the state before it.
struct StateSpaceCase {
  explicit StateSpaceCase(const StateSpaceShape& shape)
      : shape(shape),
        stride(std::max(shape.state_dim, shape.head_dim) + kRowGap),
        x(Normal(shape.tokens * stride, 1)),
        b(Normal(shape.tokens * stride, 2)),
        c(Normal(shape.tokens * stride, 3)),
        before(Normal(shape.state_dim * shape.head_dim, 4)) {
    for (size_t t = 0; t < shape.tokens; ++t) {
      decay.push_back(0.95f - 0.1f * static_cast<float>(t % 7));
      dt.push_back(0.05f + 0.2f * static_cast<float>(t % 3));
    }
  }
  const StateSpaceShape shape;
  const size_t stride;
  const std::vector<float> x, b, c, before;
  std::vector<float> decay, dt;
};

class StateSpaceTest : public ::testing::TestWithParam<Isa> {
 protected:
  void Run(const StateSpaceCase& of, const float* x, float* state, float* out,
           size_t out_stride) const {
    TableFor(GetParam())
        .state_space({.state = state,
                      .x = x,
                      .b = of.b.data(),
                      .c = of.c.data(),
                      .stride = of.stride,
                      .tokens = of.shape.tokens,
                      .state_dim = of.shape.state_dim,
                      .head_dim = of.shape.head_dim,
                      .decay = of.decay.data(),
                      .dt = of.dt.data(),
                      .skip = kStateSkip,
                      .out = out,
                      .out_stride = out_stride});
  }
};

constexpr StateSpaceShape kStateSpaceShapes[] = {
    {1, 16, 16}, {1, 128, 64}, {2, 8, 7},   {3, 8, 8},   {4, 16, 1},    {4, 24, 17},  {5, 128, 64},
    {7, 16, 33}, {8, 64, 31},  {9, 16, 65}, {13, 8, 96}, {70, 32, 128}, {67, 16, 200}};

// A cell is rounded four times a token, each time by u of what it adds up, decays included
// (`weight`, the same with magnitudes); a sum of state_dim products of cells adds as many
// roundings.
TEST_P(StateSpaceTest, IsWithinTheSummationBound) {
  for (const StateSpaceShape& shape : kStateSpaceShapes) {
    const StateSpaceCase of(shape);
    Row state(of.before);
    Guarded<float> out(shape.tokens * shape.head_dim);
    Run(of, of.x.data(), state.data(), out.data(), shape.head_dim);
    for (size_t column = 0; column < shape.head_dim; ++column) {
      std::vector<double> cell, weight;
      for (size_t i = 0; i < shape.state_dim; ++i) {
        cell.push_back(of.before[i * shape.head_dim + column]);
        weight.push_back(std::abs(cell.back()));
      }
      for (size_t t = 0; t < shape.tokens; ++t) {
        const double x = of.x[t * of.stride + column];
        const double roundings = 4 * static_cast<double>(t + 1);
        double want = kStateSkip * x, error = 2 * kU * std::abs(want);
        for (size_t i = 0; i < shape.state_dim; ++i) {
          const double added = double{of.dt[t]} * x * of.b[t * of.stride + i];
          const double c = of.c[t * of.stride + i];
          cell[i] = of.decay[t] * cell[i] + added;
          weight[i] = of.decay[t] * weight[i] + std::abs(added);
          want += c * cell[i];
          error +=
              std::abs(c) * weight[i] * kU * (roundings + static_cast<double>(shape.state_dim) + 2);
        }
        ASSERT_NEAR(out[t * shape.head_dim + column], want, error)
            << shape.tokens << " tokens, " << shape.state_dim << " x " << shape.head_dim
            << ", token " << t << ", column " << column;
      }
      for (size_t i = 0; i < shape.state_dim; ++i)
        ASSERT_NEAR(state[i * shape.head_dim + column], cell[i],
                    4 * static_cast<double>(shape.tokens) * kU * weight[i]);
    }
  }
}

TEST_P(StateSpaceTest, MayWriteOverItsInput) {
  for (const StateSpaceShape& shape : kStateSpaceShapes) {
    const StateSpaceCase of(shape);
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

// However a sequence is cut into steps, its tokens get the same bits.
TEST_P(StateSpaceTest, GivesTheSameBitsTokenByToken) {
  for (const StateSpaceShape& shape : kStateSpaceShapes) {
    const StateSpaceCase of(shape);
    std::vector<float> state = of.before, state_apart = of.before;
    std::vector<float> out(shape.tokens * shape.head_dim), apart(shape.tokens * shape.head_dim);
    Run(of, of.x.data(), state.data(), out.data(), shape.head_dim);
    for (size_t t = 0; t < shape.tokens; ++t)
      TableFor(GetParam())
          .state_space({.state = state_apart.data(),
                        .x = of.x.data() + t * of.stride,
                        .b = of.b.data() + t * of.stride,
                        .c = of.c.data() + t * of.stride,
                        .stride = of.stride,
                        .tokens = 1,
                        .state_dim = shape.state_dim,
                        .head_dim = shape.head_dim,
                        .decay = of.decay.data() + t,
                        .dt = of.dt.data() + t,
                        .skip = kStateSkip,
                        .out = apart.data() + t * shape.head_dim,
                        .out_stride = shape.head_dim});
    EXPECT_EQ(state, state_apart);
    EXPECT_EQ(out, apart);
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, StateSpaceTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
