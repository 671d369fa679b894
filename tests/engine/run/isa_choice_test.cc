#include "engine/run/isa_choice.h"

#include <gmock/gmock.h>

#include "engine/base/strings.h"

namespace pinion {
namespace {

using kernels::Isa;
using kernels::IsaOffer;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<Isa> kWithAmx = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512Bf16, Isa::kAmx};
const std::vector<Isa> kWithoutAmx = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512Bf16};

const IsaOffer& Sound() {
  static const IsaOffer offer = {kWithAmx, ""};
  return offer;
}
const IsaOffer& Refused() {
  static const IsaOffer offer = {kWithoutAmx, "its self-check failed because row 3 is wrong"};
  return offer;
}
const IsaOffer& Forbidden() {
  static const IsaOffer offer = {kWithoutAmx, "the kernel gives this process no tiles"};
  return offer;
}
const IsaOffer& NotToBeAsked() {
  ADD_FAILURE() << "tiles would have been multiplied";
  return Refused();
}

TEST(IsaChoice, AutoTakesTheBestPathWithoutAWarning) {
  const auto choice = ChooseIsa("auto", kWithAmx, Sound);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->isa, Isa::kAmx);
  EXPECT_THAT(choice->warning, IsEmpty());
}

TEST(IsaChoice, AutoTakesTheNextPathIfAmxFailsItsCheck) {
  const auto choice = ChooseIsa("auto", kWithAmx, Refused);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->isa, Isa::kAvx512Bf16);
  EXPECT_EQ(choice->warning,
            "this CPU has AMX, but it stays unused: its self-check failed because row 3 is wrong; "
            "--isa amx uses it anyway");
}

TEST(IsaChoice, AutoSuggestsNoFlagIfTilesAreUnavailable) {
  const auto choice = ChooseIsa("auto", kWithoutAmx, Forbidden);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->isa, Isa::kAvx512Bf16);
  EXPECT_EQ(choice->warning,
            "this CPU has AMX, but it stays unused: the kernel gives this process no tiles");
}

TEST(IsaChoice, AmxByNameIsTakenExactlyAndWarnedAboutIfItsCheckFails) {
  const auto sound = ChooseIsa("amx", kWithAmx, Sound),
             refused = ChooseIsa("amx", kWithAmx, Refused);
  ASSERT_TRUE(sound && refused);
  EXPECT_EQ(sound->isa, Isa::kAmx);
  EXPECT_THAT(sound->warning, IsEmpty());
  EXPECT_EQ(refused->isa, Isa::kAmx);
  EXPECT_EQ(refused->warning,
            "--isa amx uses AMX although its self-check failed because row 3 is wrong");
}

// Another path by name is how a user avoids tiles that crash.
TEST(IsaChoice, AnotherPathByNameDoesNotTryTiles) {
  const auto choice = ChooseIsa("avx2", kWithAmx, NotToBeAsked);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->isa, Isa::kAvx2);
  EXPECT_THAT(choice->warning, IsEmpty());
  EXPECT_FALSE(ChooseIsa("sse9", kWithAmx, NotToBeAsked));
}

TEST(IsaChoice, ErrorForAPathThatCannotRunListsThoseThatCan) {
  const auto unknown = ChooseIsa("sse9", kWithoutAmx, Forbidden);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kUsage);
  EXPECT_EQ(unknown.error().message,
            "--isa 'sse9' is unknown; use auto or one of scalar, avx2, avx512_bf16");
  const auto lacking = ChooseIsa("avx512", kWithoutAmx, Forbidden);
  ASSERT_FALSE(lacking);
  EXPECT_THAT(lacking.error().message, HasSubstr("'avx512' is not usable on this machine; use"));
  const auto forbidden = ChooseIsa("amx", kWithoutAmx, Forbidden);
  ASSERT_FALSE(forbidden);
  EXPECT_THAT(forbidden.error().message,
              HasSubstr("'amx' is not usable on this machine: the kernel "
                        "gives this process no tiles; use auto or"));
}

}  // namespace
}  // namespace pinion
