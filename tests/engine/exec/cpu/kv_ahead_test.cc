#include "engine/exec/cpu/kv_ahead.h"

#include <gtest/gtest.h>

#include "engine/kv/block_pool.h"

namespace pinion {
namespace {

// 3 layers; 10 spans of 8 blocks.
constexpr Decoder::KvPieces kPieces = {8, 3, 30};

void ExpectNext(KvAhead& ahead, size_t reached, size_t most, size_t first, size_t last) {
  const KvAhead::Range next = ahead.Next(reached, most);
  EXPECT_EQ(next.first, first);
  EXPECT_EQ(next.last, last);
}

TEST(KvAhead, TouchesTheReserveOnceInOrder) {
  KvAhead ahead(kPieces, 12);
  ExpectNext(ahead, 0, 4, 0, 4);
  ExpectNext(ahead, 0, 4, 4, 6);  // 12 blocks end in the second span
  EXPECT_TRUE(ahead.Next(0, 4).empty());
}

TEST(KvAhead, KeepsTheReserveAheadOfTheBlocksGivenOut) {
  KvAhead ahead(kPieces, 12);
  ahead.Next(0, 100);
  EXPECT_TRUE(ahead.Next(4, 100).empty());
  ExpectNext(ahead, 5, 100, 6, 9);
  ExpectNext(ahead, 30, 100, 9, 18);
}

TEST(KvAhead, KeepsHalfOfTheReserveBesideSteps) {
  KvAhead ahead(kPieces, 24);
  EXPECT_EQ(ahead.Next(0, 100, /*half=*/true).last, 6u);
  EXPECT_TRUE(ahead.Next(0, 100, /*half=*/true).empty());
  ExpectNext(ahead, 0, 100, 6, 9);
}

// A burst has used what was not touched yet; of the span that it ended in, perhaps a part.
TEST(KvAhead, LeavesOutPiecesInUse) {
  KvAhead ahead(kPieces, 12);
  ExpectNext(ahead, 33, 2, 12, 14);
  ExpectNext(ahead, 33, 100, 14, 18);
}

TEST(KvAhead, EndsWithTheCache) {
  KvAhead ahead(kPieces, 1000);
  ExpectNext(ahead, 75, 100, 27, 30);
  EXPECT_TRUE(ahead.Next(80, 100).empty());
}

TEST(KvAhead, HasNothingToDoWithoutAReserve) {
  KvAhead ahead(kPieces, 0);
  EXPECT_TRUE(ahead.Next(40, 100).empty());
}

TEST(KvAhead, ReservesForABurstOfSequencesWithinAGibibyteOrAnEighth) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  constexpr size_t kOfSequence = BlockPool::kRunBlocks + 1;
  EXPECT_EQ(ReserveBlocks(1000, kGiB / 2, 256), 1000u) << "never more than there are";
  EXPECT_EQ(ReserveBlocks(100'000, 4 * kGiB, 8), 8 * kOfSequence);
  EXPECT_EQ(ReserveBlocks(100'000, 4 * kGiB, 10'000), 25'000u) << "a gibibyte";
  EXPECT_EQ(ReserveBlocks(100'000, 16 * kGiB, 10'000), 12'500u) << "an eighth";
  EXPECT_EQ(ReserveBlocks(100, 0, 256), 0u) << "a model without attention";
}

}  // namespace
}  // namespace pinion
