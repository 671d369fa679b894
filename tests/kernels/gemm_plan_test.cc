#include "kernels/gemm_plan.h"

#include "tests/kernels/gemm_problem.h"

namespace pinion::kernels::testing {
namespace {

constexpr size_t kRows[] = {1, 2, 5, 6, 7, 13, 16, 17, 31, 32, 33, 70, 129};

class GemmPlanTest : public ::testing::TestWithParam<Isa> {
 protected:
  // Back to the path's own kernels.
  void TearDown() override {
    for (Dtype weights : kDtypes) {
      UseGemmRules(GetParam(), weights, {{1, GemmCandidates(GetParam(), weights).front()}});
    }
  }
};

// Each candidate by itself is as good as the others.
TEST_P(GemmPlanTest, EveryCandidateIsWithinTheSummationBound) {
  for (Dtype weights : kDtypes) {
    for (size_t rows : kRows) {
      const Problem p(rows, 200, 3, weights);
      const size_t ldy = 3 * kBlockN + 16;
      for (const GemmKernel& kernel : GemmCandidates(GetParam(), weights)) {
        SCOPED_TRACE(::testing::Message() << Name(kernel) << " " << Name(weights) << " " << rows);
        Guarded<float> y(rows * ldy, 64);
        RunGemmKernel(kernel, weights,
                      {p.x.data(), p.w.data(), y.data(), rows, p.k_padded, p.blocks, ldy});
        Check(p, y, ldy);
      }
    }
  }
}

TEST_P(GemmPlanTest, GemmFollowsItsRules) {
  for (Dtype weights : kDtypes) {
    const std::vector<GemmKernel> kernels = GemmCandidates(GetParam(), weights);
    EXPECT_EQ(ActiveGemmRules(GetParam(), weights), (GemmRules{{1, kernels.front()}}));
    GemmRules rules;
    for (const GemmKernel& kernel : kernels) rules.push_back({3 * rules.size() + 1, kernel});
    UseGemmRules(GetParam(), weights, rules);
    EXPECT_EQ(ActiveGemmRules(GetParam(), weights), rules);
    for (size_t rows = 1; rows <= 3 * kernels.size() + 3; ++rows) {
      const Problem p(rows, 64, 1, weights);
      std::vector<float> got(rows * kBlockN + 16), want(got);
      GemmArgs args{p.x.data(), p.w.data(), got.data(), rows, p.k_padded, p.blocks, kBlockN};
      Gemm(TableFor(GetParam()), weights, args);
      args.y = want.data();
      RunGemmKernel(kernels[std::min((rows - 1) / 3, kernels.size() - 1)], weights, args);
      EXPECT_EQ(got, want) << rows;  // bit by bit: the same kernel
    }
  }
}

TEST_P(GemmPlanTest, MeasuredRulesAreReadBackAndRemembered) {
  for (Dtype weights : kDtypes) {
    const GemmRules rules = MeasureGemmRules(GetParam(), weights);
    ASSERT_FALSE(rules.empty());
    EXPECT_EQ(rules.front().from_rows, 1u);
    EXPECT_EQ(ParseGemmRules(Format(rules), GetParam(), weights), rules) << Format(rules);
    EXPECT_EQ(MeasureGemmRules(GetParam(), weights), rules);
  }
}

TEST_P(GemmPlanTest, RulesThatMakeNoSenseAreRefused) {
  for (Dtype weights : kDtypes) {
    const std::string name = Name(GemmCandidates(GetParam(), weights).front());
    EXPECT_TRUE(ParseGemmRules(name, GetParam(), weights));
    EXPECT_TRUE(ParseGemmRules(name + "," + name + "@7", GetParam(), weights));
    for (const std::string& text :
         {std::string(), std::string("magic"), name + ",", "," + name, name + "@0", name + "@2",
          name + "@-1", name + "@1x", name + "@", name + "," + name, name + "@1," + name + "@1",
          name + ",magic@2", name + "@99999999999999999999"}) {
      EXPECT_FALSE(ParseGemmRules(text, GetParam(), weights)) << "'" << text << "'";
    }
  }
}

// Kernels that this path may not run, or that oneDNN lacks, are not candidates.
TEST_P(GemmPlanTest, CandidatesBelongToThePath) {
  for (Dtype weights : kDtypes) {
    for (const GemmKernel& kernel : GemmCandidates(GetParam(), weights)) {
      EXPECT_LE(kernel.isa, GetParam());
      EXPECT_FALSE(kernel.is_onednn && weights == Dtype::kF16);
      EXPECT_FALSE(kernel.is_onednn && GetParam() < Isa::kAvx512);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, GemmPlanTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
