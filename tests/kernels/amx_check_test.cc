// The self-check of AMX, on emulated tiles: right ones pass, and each way in which tiles have been,
// or may be, wrong is named.

#include "kernels/amx_check.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "kernels/offered_isas.h"
#include "tests/kernels/emulated_products.h"

namespace pinion::kernels::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

using RightBf16 = Emulated<PairOfBf16>;
using RightIntegers = Emulated<FourOfSU8>;

// Codes of every kind, as the path "amx" chooses.
template <typename Bf16Tiles = RightBf16, typename IntegerTiles = RightIntegers>
void MultiplyCodesOn(const IntLayout& layout, const IntGemmArgs& args) {
  impl::FitsE2m1Tiles(layout, args.rows) ? MultiplyE2m1On<Bf16Tiles>(layout, args)
                                         : MultiplyIntegersOn<IntegerTiles>(layout, args);
}

template <typename Bf16Tiles, typename IntegerTiles>
std::string CheckOf() {
  return CompareTileProducts({MultiplyBf16On<Bf16Tiles>, MultiplyCodesOn<Bf16Tiles, IntegerTiles>},
                             {TableFor(Isa::kScalar).gemm_bf16, IntTableFor(Isa::kScalar).gemm});
}

TEST(AmxCheck, AcceptsRightTiles) { EXPECT_THAT((CheckOf<RightBf16, RightIntegers>()), IsEmpty()); }

// All sums are exact, so paths that add up in another order have to agree to the bit.
TEST(AmxCheck, AcceptsEveryPathThatRunsHere) {
  for (const Isa isa : UsableIsas()) {
    EXPECT_THAT(
        CompareTileProducts({TableFor(isa).gemm_bf16, IntTableFor(isa).gemm},
                            {TableFor(Isa::kScalar).gemm_bf16, IntTableFor(Isa::kScalar).gemm}),
        IsEmpty())
        << Name(isa);
  }
}

// ---- Wrong products.

struct SwappedPairOfBf16 : PairOfBf16 {
  static float Product(const std::byte* a, const std::byte* b) {
    return Get(a, Dtype::kBf16, 0) * Get(b, Dtype::kBf16, 1) +
           Get(a, Dtype::kBf16, 1) * Get(b, Dtype::kBf16, 0);
  }
};
// Bfloat16 cut to the 7 bits of significand that a sloppy emulation keeps.
struct CoarsePairOfBf16 : PairOfBf16 {
  static float Product(const std::byte* a, const std::byte* b) {
    std::byte cut[4] = {a[0] & std::byte{0xfe}, a[1], a[2], a[3]};
    return PairOfBf16::Product(cut, b);
  }
};
// Signed bytes, zero-extended.
struct FourOfUU8 : FourOfSU8 {
  static int32_t Product(const std::byte* a, const std::byte* b) {
    int32_t sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<uint8_t>(a[i]) * static_cast<uint8_t>(b[i]);
    return sum;
  }
};

TEST(AmxCheck, RefusesBfloat16OfSwappedPairs) {
  EXPECT_THAT((CheckOf<Emulated<SwappedPairOfBf16>, RightIntegers>()),
              AllOf(StartsWith("row 0, output 0 of a product of bfloat16 (16 rows, 32 columns, 128 "
                               "outputs) is "),
                    HasSubstr(" instead of ")));
}

TEST(AmxCheck, RefusesBfloat16OfFewerBits) {
  EXPECT_THAT((CheckOf<Emulated<CoarsePairOfBf16>, RightIntegers>()),
              HasSubstr(" of a product of bfloat16 "));
}

TEST(AmxCheck, RefusesSignedBytesTakenAsUnsigned) {
  EXPECT_THAT((CheckOf<RightBf16, Emulated<FourOfUU8>>()),
              StartsWith("row 0, output 0 of a product of 8-bit integers (16 rows, 64 columns, 64 "
                         "outputs) is "));
}

TEST(AmxCheck, RefusesUnsignedBytesTakenAsSigned) {
  EXPECT_THAT((CheckOf<RightBf16, Emulated<FourOfS8>>()),
              HasSubstr(" of a product of 8-bit integers "));
}

// ---- Right products of the wrong bytes.

// Full tiles have their last two rows changed for one another as they are stored.
template <typename Right>
struct WrongRow : Right {
  template <int t>
  static void Store(std::byte* to, size_t stride) {
    auto& tile = EmulatedTiles::Now().tile[t];
    if (Right::Rows(t) == 16) std::swap(tile[14], tile[15]);
    Right::template Store<t>(to, stride);
  }
};

// The last word of K in a tile is left out.
template <typename Right>
struct MissingTail : Right {
  template <int t>
  static void Load(const std::byte* from, size_t stride) {
    Right::template Load<t>(from, stride);
    for (auto& row : EmulatedTiles::Now().tile[t]) std::fill(row + 60, row + 64, std::byte{0});
  }
};

// The last row of a tile that is not full is not stored.
template <typename Right>
struct MissingRow : Right {
  template <int t>
  static void Store(std::byte* to, size_t stride) {
    const size_t rows = Right::Rows(t) < 16 ? Right::Rows(t) - 1 : 16;
    for (size_t row = 0; row < rows; ++row)
      std::memcpy(to + row * stride, EmulatedTiles::Now().tile[t][row], Right::RowBytes(t));
  }
};

// The configuration before is kept: tiles have 16 rows all along.
template <typename Right>
struct StaleShape : Right {
  static void Configure(const impl::TileShape&) { Right::Configure(impl::TileShape{}); }
};

template <template <typename> typename Broken>
void ExpectRefused(const std::string& in_bf16, const std::string& in_integers) {
  EXPECT_THAT((CheckOf<Broken<RightBf16>, RightIntegers>()),
              AllOf(HasSubstr(" of a product of bfloat16 "), HasSubstr(in_bf16)));
  EXPECT_THAT((CheckOf<RightBf16, Broken<RightIntegers>>()),
              AllOf(HasSubstr(" of a product of 8-bit integers "), HasSubstr(in_integers)));
}

TEST(AmxCheck, RefusesWrongRows) {
  ExpectRefused<WrongRow>("row 14, output 0", "row 14, output 0");
}

TEST(AmxCheck, RefusesAMissingTail) { ExpectRefused<MissingTail>("row 0", "row 0"); }

TEST(AmxCheck, RefusesRowsThatAreNotWritten) {
  ExpectRefused<MissingRow>(
      "row 2, output 0 of a product of bfloat16 (3 rows, 33 columns, 72 "
      "outputs) was left unwritten",
      "row 32, output 0 of a product of 8-bit integers (33 rows");
}

TEST(AmxCheck, RefusesAStaleShape) {
  ExpectRefused<StaleShape>(
      "row 3, output 0 of a product of bfloat16 (3 rows, 33 columns, 72 "
      "outputs) is outside the result and was overwritten",
      "row 33, output 0 of a product of 8-bit integers (33 rows");
}

// Grouped codes of 4 bits take another way than whole rows.
TEST(AmxCheck, RefusesTilesThatAreWrongForFourBitsOnly) {
  const auto broken = [](const IntLayout& layout, const IntGemmArgs& args) {
    MultiplyCodesOn(layout, args);
    if (layout.bits == 4) args.y[16 * args.ldy + 63] += 1;
  };
  EXPECT_THAT(
      CompareTileProducts({MultiplyBf16On<RightBf16>, broken},
                          {TableFor(Isa::kScalar).gemm_bf16, IntTableFor(Isa::kScalar).gemm}),
      StartsWith("row 16, output 63 of a product of 4-bit integers (40 rows, 128 columns, "
                 "64 outputs) is "));
}

// So do floats of 4 bits.
TEST(AmxCheck, RefusesTilesThatAreWrongForFloatsOfFourBitsOnly) {
  const auto broken = [](const IntLayout& layout, const IntGemmArgs& args) {
    MultiplyCodesOn(layout, args);
    if (layout.e2m1()) args.y[39 * args.ldy + 7] = -args.y[39 * args.ldy + 7];
  };
  EXPECT_THAT(
      CompareTileProducts({MultiplyBf16On<RightBf16>, broken},
                          {TableFor(Isa::kScalar).gemm_bf16, IntTableFor(Isa::kScalar).gemm}),
      StartsWith("row 39, output 7 of a product of 4-bit floats (40 rows, 64 columns, "
                 "64 outputs) is "));
}

TEST(AmxCheck, NamesResultsThatAreNaN) {
  const auto broken = [](const GemmArgs& args) {
    MultiplyBf16On<RightBf16>(args);
    args.y[args.ldy + 2] = NAN;
  };
  EXPECT_THAT(CompareTileProducts({broken, MultiplyCodesOn<>}, {TableFor(Isa::kScalar).gemm_bf16,
                                                                IntTableFor(Isa::kScalar).gemm}),
              AllOf(StartsWith("row 1, output 2 of "), HasSubstr(" is nan instead of ")));
}

// ---- What is offered.

int checks = 0;

TEST(IsaOffer, AnAcceptedPathIsTheBest) {
  checks = 0;
  const IsaOffer offer = OfferOf({Isa::kScalar, Isa::kAvx512Bf16, Isa::kAmx}, "", [] {
    ++checks;
    return std::string();
  });
  EXPECT_EQ(checks, 1);
  EXPECT_THAT(offer.isas, ElementsAre(Isa::kScalar, Isa::kAvx512Bf16, Isa::kAmx));
  EXPECT_THAT(offer.amx_refusal, IsEmpty());
}

TEST(IsaOffer, ARefusedPathLeavesTheNextWithTheReason) {
  const IsaOffer offer = OfferOf({Isa::kScalar, Isa::kAvx512Bf16, Isa::kAmx}, "",
                                 [] { return std::string("row 3 of a product is wrong"); });
  EXPECT_THAT(offer.isas, ElementsAre(Isa::kScalar, Isa::kAvx512Bf16));
  EXPECT_EQ(offer.amx_refusal, "its self-check failed because row 3 of a product is wrong");
}

// Tiles that cannot be used are not touched: without permission they would kill the process.
TEST(IsaOffer, ChecksNoPathThatCannotRun) {
  checks = 0;
  const IsaOffer offer = OfferOf({Isa::kScalar, Isa::kAvx2}, "the kernel gives no tiles", [] {
    ++checks;
    return std::string("wrong");
  });
  EXPECT_EQ(checks, 0);
  EXPECT_THAT(offer.isas, ElementsAre(Isa::kScalar, Isa::kAvx2));
  EXPECT_EQ(offer.amx_refusal, "the kernel gives no tiles");
}

TEST(IsaOffer, OfThisMachineIsCheckedOnce) {
  const IsaOffer& offer = OfferedIsas();
  EXPECT_EQ(&OfferedIsas(), &offer);
  const auto& usable = UsableIsas();
  if (std::find(usable.begin(), usable.end(), Isa::kAmx) == usable.end()) {
    EXPECT_EQ(offer.isas, usable);
  } else {
    EXPECT_THAT(CheckAmx(), IsEmpty()) << "this machine's tiles are wrong";
    EXPECT_THAT(offer.amx_refusal, IsEmpty());
  }
}

}  // namespace
}  // namespace pinion::kernels::testing
