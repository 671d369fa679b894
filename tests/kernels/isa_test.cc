#include "kernels/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "kernels/integer.h"
#include "kernels/kernels.h"

namespace pinion::kernels {
namespace {

TEST(Isa, NamesComeBack) {
  for (int i = 0; i < kIsaCount; ++i) {
    const auto isa = static_cast<Isa>(i);
    EXPECT_EQ(ParseIsa(Name(isa)), isa);
  }
}

TEST(Isa, UnknownNamesAreRefused) {
  for (const char* name : {"", "avx", "AVX2", "avx512_", "avx2 ", "auto"}) {
    EXPECT_EQ(ParseIsa(name), std::nullopt) << name;
  }
}

TEST(Isa, UsableOnesStartWithScalarAndAscend) {
  const std::vector<Isa>& usable = UsableIsas();
  ASSERT_FALSE(usable.empty());
  EXPECT_EQ(usable.front(), Isa::kScalar);
  EXPECT_TRUE(std::is_sorted(usable.begin(), usable.end()));
  EXPECT_EQ(std::adjacent_find(usable.begin(), usable.end()), usable.end());
}

// The kernel's own list, which is CPUID cut down to what it saves at a context switch. (Not AMX:
// its permission may be refused to this process alone.)
TEST(Isa, AgreesWithTheOperatingSystem) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line, flags;
  while (std::getline(cpuinfo, line) && flags.empty()) {
    if (line.rfind("flags", 0) == 0) flags = line + " ";
  }
  ASSERT_FALSE(flags.empty());
  const auto has = [&](std::initializer_list<const char*> names) {
    return std::all_of(names.begin(), names.end(), [&](const char* name) {
      return flags.find(std::string(" ") + name + " ") != std::string::npos;
    });
  };
  const bool avx2 = has({"avx2", "fma", "f16c"});
  const bool avx512 = avx2 && has({"avx512f", "avx512bw", "avx512dq", "avx512vl"});
  const std::vector<Isa>& usable = UsableIsas();
  const auto found = [&](Isa isa) { return std::count(usable.begin(), usable.end(), isa) == 1; };
  EXPECT_EQ(found(Isa::kAvx2), avx2);
  EXPECT_EQ(found(Isa::kAvx2Vnni), avx2 && has({"avx_vnni"}));
  EXPECT_EQ(found(Isa::kAvx512), avx512);
  EXPECT_EQ(found(Isa::kAvx512Vnni), avx512 && has({"avx512_vnni"}));
  EXPECT_EQ(found(Isa::kAvx512Bf16), avx512 && has({"avx512_bf16"}));
  EXPECT_LE(found(Isa::kAmx), has({"amx_tile", "amx_bf16"}));
  const bool has_amx = found(Isa::kAvx512Bf16) && has({"amx_tile", "amx_bf16"});
  EXPECT_EQ(found(Isa::kAmx) || !AmxRefusal().empty(), has_amx) << AmxRefusal();
  EXPECT_FALSE(found(Isa::kAmx) && !AmxRefusal().empty());
}

TEST(Isa, EveryUsableTableIsItsOwnAndComplete) {
  for (Isa isa : UsableIsas()) {
    const Table& table = TableFor(isa);
    EXPECT_EQ(table.isa, isa);
    EXPECT_TRUE(table.gemm_f32 && table.gemm_bf16 && table.gemm_f16 && table.rms_norm &&
                table.layer_norm && table.rotary && table.rotary_pairs && table.activate &&
                table.activate_gated && table.activate_rows && table.clamped_swiglu && table.add &&
                table.add_scaled && table.scale && table.weigh && table.sum_squares &&
                table.soft_cap && table.store && table.log_sum_exp && table.exp_weights &&
                table.sum_at_least && table.max && table.argmax && table.kv_write &&
                table.attention && table.attention_merge);
  }
}

// Forcing an ISA by name must give that ISA's code, not a fallback's.
TEST(Isa, PathsShareNoProducts) {
  const std::vector<Isa>& usable = UsableIsas();
  for (size_t i = 1; i < usable.size(); ++i) {
    const Isa isa = usable[i];
    const bool is_vnni = FloatPath(isa) != isa;
    if (is_vnni) {
      EXPECT_NE(IntTableFor(isa).gemm, IntTableFor(FloatPath(isa)).gemm);
      EXPECT_STREQ(IntTableFor(isa).name, Name(isa));
      continue;
    }
    for (size_t other = 0; other < i; ++other) {
      EXPECT_NE(TableFor(isa).gemm_bf16, TableFor(usable[other]).gemm_bf16);
      if (isa == Isa::kAmx) continue;  // attends as AVX-512 does
      EXPECT_NE(TableFor(isa).attention, TableFor(usable[other]).attention);
    }
  }
}

TEST(IsaDeathTest, AnUnusableTableAborts) {
  const std::vector<Isa>& usable = UsableIsas();
  if (usable.size() == kIsaCount) GTEST_SKIP() << "this CPU has every path";
  for (int i = 0; i < kIsaCount; ++i) {
    const auto isa = static_cast<Isa>(i);
    if (std::count(usable.begin(), usable.end(), isa) == 0) {
      EXPECT_DEATH(TableFor(isa), Name(isa));
      return;
    }
  }
}

}  // namespace
}  // namespace pinion::kernels
