#include "kernels/probe.h"

#include "tests/kernels/testing.h"

namespace pinion::kernels::testing {
namespace {

class ProbeTest : public ::testing::TestWithParam<Isa> {
 protected:
  const Probes& probes_ = ProbesFor(GetParam());
};

TEST_P(ProbeTest, CountsItsOperationsInProportionToItsSteps) {
  EXPECT_EQ(probes_.isa, GetParam());
  for (const auto probe : {probes_.multiply_f32, probes_.multiply_bf16, probes_.exp_f32}) {
    if (!probe) continue;
    EXPECT_EQ(probe(0), 0u);
    EXPECT_GT(probe(1), 0u);
    EXPECT_EQ(probe(7), 7 * probe(1));
  }
}

// Only paths with an instruction for it claim bfloat16, and there a lane multiplies two of them.
TEST_P(ProbeTest, ClaimsBfloat16IfTheIsaHasIt) {
  const bool has = GetParam() == Isa::kAvx512Bf16 || GetParam() == Isa::kAmx;
  ASSERT_EQ(probes_.multiply_bf16 != nullptr, has);
  if (GetParam() == Isa::kAvx512Bf16) {
    EXPECT_EQ(probes_.multiply_bf16(3), 2 * probes_.multiply_f32(3));
  }
}

// The buffer ends at an unmapped page: a load too many would fault.
TEST_P(ProbeTest, ReadsNothingBeyondItsBytes) {
  Guarded<std::byte> memory(3 * kProbeChunk, 64);
  for (const auto read : {probes_.read, probes_.stream}) {
    read(memory.data(), 3 * kProbeChunk);
    read(memory.data() + memory.size(), 0);
  }
}

TEST(InstructionProbes, CountTheirOperationsInProportionToTheirSteps) {
  size_t usable = 0;
  for (const InstructionProbe& probe : InstructionProbes()) {
    SCOPED_TRACE(probe.name);
    if (!probe.run) continue;
    ++usable;
    EXPECT_EQ(probe.run(0), 0u);
    EXPECT_GT(probe.run(1), 0u);
    EXPECT_EQ(probe.run(7), 7 * probe.run(1));
  }
  EXPECT_EQ(usable > 0, UsableIsas().size() > 1);  // AVX2 has one of them
}

TEST_P(ProbeTest, HasInt8BeyondScalar) {
  const auto probe = Int8Probe(GetParam());
  ASSERT_EQ(probe != nullptr, GetParam() != Isa::kScalar);
  if (!probe) return;
  EXPECT_EQ(probe(0), 0u);
  EXPECT_EQ(probe(7), 7 * probe(1));
}

TEST(ProbeChain, FollowsEveryLink) {
  const void* chain[3] = {&chain[2], &chain[0], &chain[1]};
  EXPECT_EQ(ProbeChain(&chain[0], 0), &chain[0]);
  EXPECT_EQ(ProbeChain(&chain[0], 1), &chain[2]);
  EXPECT_EQ(ProbeChain(&chain[0], 5), &chain[1]);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, ProbeTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace pinion::kernels::testing
