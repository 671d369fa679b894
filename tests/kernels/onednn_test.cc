// oneDNN's instruction-set cap holds for a whole process, so every ISA is tested in a process of
// its own: OneDnn.* start this binary again with the ISA in the environment, for OneDnnChild.* to
// run.

#include "kernels/impl/onednn.h"

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "tests/kernels/gemm_problem.h"

namespace pinion::kernels::testing {
namespace {

constexpr const char* kIsaVariable = "PINION_TEST_ONEDNN_ISA";

// On both sides of buckets, in one, in several and in several with a rest.
constexpr size_t kOneDnnRows[] = {1, 2, 4, 5, 16, 17, 33, 63, 64, 65, 129, 200, 513};

// Runs `gemm` on y with a row stride, and checks it against the exact product.
template <typename F>
void RunAndCheck(const Problem& p, size_t extra_columns, F gemm) {
  SCOPED_TRACE(::testing::Message()
               << Name(p.weights) << ", rows " << p.rows << ", extra columns " << extra_columns);
  const size_t n = p.blocks * 64, ldy = n + extra_columns;
  Guarded<float> y((p.rows - 1) * ldy + n, 64);
  for (float& v : y) v = 1e30f;
  gemm(GemmArgs{p.x.data(), p.w.data(), y.data(), p.rows, p.k_padded, p.blocks, ldy});
  Check(p, y, ldy);
  for (size_t row = 0; row + 1 < p.rows; ++row) {
    for (size_t j = n; j < ldy; ++j) ASSERT_EQ(y[row * ldy + j], 1e30f) << "wrote between rows";
  }
}

class OneDnnChild : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* name = std::getenv(kIsaVariable);
    if (name == nullptr) GTEST_SKIP() << "runs in the processes that OneDnn.* start";
    isa_ = ParseIsa(name).value();
    ASSERT_TRUE(LimitOneDnn(isa_));
  }

  Isa isa_ = Isa::kScalar;
};

TEST_F(OneDnnChild, TheCapStays) {
  EXPECT_TRUE(LimitOneDnn(isa_));
  EXPECT_FALSE(LimitOneDnn(isa_ == Isa::kScalar ? Isa::kAvx2 : Isa::kScalar));
}

TEST_F(OneDnnChild, PrimitivesReadThePackedLayoutInPlace) {
  for (Dtype weights : kDtypes) {
    for (size_t rows : kOneDnnRows) {
      const auto run = [&](const GemmArgs& args) {
        ASSERT_EQ(impl::OneDnnGemm(weights, args), impl::HasOneDnn(isa_, weights));
        if (!impl::HasOneDnn(isa_, weights)) Gemm(TableFor(isa_), weights, args);
      };
      RunAndCheck(Problem(rows, 96, 3, weights), 0, run);
      RunAndCheck(Problem(rows, 96, 3, weights), 48, run);
    }
  }
}

TEST_F(OneDnnChild, RowsMayLieApart) {
  constexpr size_t kGap = 32;
  for (const Dtype weights : kDtypes) {
    if (!impl::HasOneDnn(isa_, weights)) continue;
    for (const size_t rows : {3, 16, 513}) {  // within a bucket, one, and several
      const Problem p(rows, 96, 1, weights);
      Guarded<std::byte> x(p.SpreadBytes(kGap), 64);
      p.Spread(kGap, x);
      RunAndCheck(p, 0, [&](GemmArgs args) {
        args.x = x.data();
        args.x_stride = p.k_padded + kGap;
        ASSERT_TRUE(impl::OneDnnGemm(weights, args));
      });
    }
  }
}

TEST_F(OneDnnChild, MoreRowsThanTheLargestBucketAreCut) {
  if (!impl::HasOneDnn(isa_, Dtype::kF32)) GTEST_SKIP() << "no primitive on this path";
  RunAndCheck(Problem(2048 + 5, 32, 1, Dtype::kF32), 16,
              [](const GemmArgs& args) { ASSERT_TRUE(impl::OneDnnGemm(Dtype::kF32, args)); });
}

// Each thread has its own primitives and scratch; both work on one matrix's blocks at once.
TEST_F(OneDnnChild, ThreadsShareNothing) {
  for (Dtype weights : {Dtype::kF32, Dtype::kBf16}) {
    const Problem p(19, 64, 4, weights);
    RunAndCheck(p, 0, [&](const GemmArgs& args) {
      GemmArgs left = args, right = args;
      left.blocks = 1;
      right.blocks = 3;
      right.w += PackedBlockBytes(weights, 64);
      right.y += 64;
      const auto work = [&](const GemmArgs& part) {
        for (int i = 0; i < 20; ++i) {
          if (!impl::OneDnnGemm(weights, part)) Gemm(TableFor(isa_), weights, part);
        }
      };
      std::thread other([&] { work(left); });
      work(right);
      other.join();
    });
  }
}

class OneDnn : public ::testing::TestWithParam<Isa> {};

TEST_P(OneDnn, WorksInAProcessCappedToTheIsa) {
  char self[4096] = {};
  ASSERT_GT(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
  const std::string command = std::string(kIsaVariable) + "=" + Name(GetParam()) +
                              " GTEST_OUTPUT= '" + self +
                              "' --gtest_filter='OneDnnChild.*' --gtest_brief=1";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

INSTANTIATE_TEST_SUITE_P(AllIsas, OneDnn, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
