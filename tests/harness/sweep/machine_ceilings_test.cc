#include "harness/sweep/machine_ceilings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pinion::harness {
namespace {

using testing::HasSubstr;

// A probe of two cores, which read 20 GB/s together and 12 alone.
constexpr char kTwoCores[] = R"({
"memory_read":[{"threads":1,"bytes_per_s":1.2e10},{"threads":2,"bytes_per_s":2e10}],
"compute":[{"isa":"avx2","dtype":"float32","threads":2,"flops_per_s":1e11}]})";

const std::vector<std::string> kIsas = {"avx2", "avx512_bf16", "amx"};

MachineCeilings For(const char* machine, const char* probe, const StatedCeilings& stated) {
  return *MachineCeilings::For(*ImagineMachine(machine), *Json::Parse(probe), stated, kIsas);
}

TEST(MachineCeilings, OfAProbeAreScaledByTheCoresOfEachNode) {
  const MachineCeilings ceilings = For("pack:2 numa:1 core:32 pu:2", kTwoCores, {});
  EXPECT_DOUBLE_EQ(ceilings.ReadBytesPerS({{0, 1}}), 1.2e10);
  EXPECT_DOUBLE_EQ(ceilings.ReadBytesPerS({{0, 32}}), 32e10);
  EXPECT_DOUBLE_EQ(ceilings.ReadBytesPerS({{0, 32}, {1, 32}}), 64e10);
  EXPECT_DOUBLE_EQ(ceilings.ReadBytesPerSAtMost(), MachineCeilings::kMargin * 64e10);
  EXPECT_DOUBLE_EQ(ceilings.PeakOf("avx2", "bfloat16", 64)->flops_per_s, 32e11);
}

TEST(MachineCeilings, StatedMemoryLimitsEachNodeAndItsCores) {
  StatedCeilings stated;
  stated.node_bytes_per_s = 3e11;
  const MachineCeilings node = For("pack:2 numa:3 core:19 pu:2", "null", stated);
  EXPECT_DOUBLE_EQ(node.ReadBytesPerS({{0, 1}}), MachineCeilings::kCoreBytesPerS);
  EXPECT_DOUBLE_EQ(node.ReadBytesPerS({{0, 1000}}), 3e11);
  EXPECT_DOUBLE_EQ(node.ReadBytesPerS({{0, 1000}, {5, 1000}}), 6e11);
  StatedCeilings channels;
  channels.socket_bytes_per_s = *ParseChannels("12x6400", "--memory-channels");
  EXPECT_DOUBLE_EQ(*channels.socket_bytes_per_s, 12 * 6400e6 * 8);
  const MachineCeilings socket = For("pack:2 numa:3 core:19 pu:2", "null", channels);
  EXPECT_DOUBLE_EQ(socket.ReadBytesPerS({{2, 1000}}), 4 * 6400e6 * 8);
}

TEST(MachineCeilings, StatedPeakIsTheBestPathsAndOthersFollowTheirWidth) {
  StatedCeilings stated;
  stated.node_bytes_per_s = 1e11;
  stated.core_flops_per_s = 2e12;
  const MachineCeilings ceilings = For("pack:1 numa:1 core:4 pu:1", "null", stated);
  EXPECT_DOUBLE_EQ(ceilings.PeakOf("amx", "bfloat16", 2)->flops_per_s, 4e12);
  EXPECT_DOUBLE_EQ(ceilings.PeakOf("amx", "bfloat16", 1)->int8_ops_per_s, 4e12);
  EXPECT_DOUBLE_EQ(ceilings.PeakOf("avx512_bf16", "bfloat16", 1)->flops_per_s, 2e12 / 8);
  EXPECT_DOUBLE_EQ(ceilings.PeakOf("avx2", "bfloat16", 1)->flops_per_s, 2e12 / 32);
  // Instead of a probe's, too.
  const MachineCeilings both = For("pack:1 numa:1 core:4 pu:1", kTwoCores, stated);
  EXPECT_DOUBLE_EQ(both.PeakOf("amx", "bfloat16", 1)->flops_per_s, 2e12);
  EXPECT_DOUBLE_EQ(both.ReadBytesPerS({{0, 1}}), 1.2e10);
  // Unstated: the width of the vectors at a usual clock.
  stated.core_flops_per_s.reset();
  EXPECT_DOUBLE_EQ(
      For("pack:1 numa:1 core:4 pu:1", "null", stated).PeakOf("avx2", "float32", 1)->flops_per_s,
      32 * MachineCeilings::kClockHz);
}

TEST(MachineCeilings, WithoutBandwidthThereAreNone) {
  StatedCeilings stated;
  stated.core_flops_per_s = 1e12;
  EXPECT_THAT(
      MachineCeilings::For(*ImagineMachine("pack:1 numa:1 core:4 pu:1"), Json(), stated, kIsas)
          .error()
          .message,
      HasSubstr("add --node-bandwidth"));
}

TEST(MachineCeilings, RatesAreReadWithDecimalPrefixes) {
  for (const char* text : {"300GB/s", "300G", "300 GB/s", "0.3TB", "3e11", "300gB/s"})
    EXPECT_DOUBLE_EQ(*ParseRate(text, "B", "--node-bandwidth"), 3e11) << text;
  for (const char* text : {"120GFLOP/s", "120GFLOPS", "0.12T"})
    EXPECT_DOUBLE_EQ(*ParseRate(text, "FLOP", "--core-peak"), 1.2e11) << text;
  for (const char* text :
       {"", "fast", "-3G", "0", "300GB/h", "300GFLOP/s", "300GiB/s", "inf", "nan"})
    EXPECT_THAT(ParseRate(text, "B", "--node-bandwidth").error().message,
                HasSubstr("must have the form 300GB/s"))
        << text;
  for (const char* text : {"", "12", "12x", "0x6400", "12x-1", "12x6400x8"})
    EXPECT_THAT(ParseChannels(text, "--memory-channels").error().message, HasSubstr("12x6400"))
        << text;
}

}  // namespace
}  // namespace pinion::harness
