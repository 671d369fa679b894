#include "engine/decoder/head_items.h"

#include <gtest/gtest.h>

namespace pinion {
namespace {

constexpr size_t kHeads = 8, kThreads = 4;

// Then no thread waits long for one that is late.
TEST(RowsTogether, EveryThreadHasFourItemsOrRowsAreSingle) {
  for (size_t threads : {1, 2, 4, 16, 64}) {
    for (size_t rows = 1; rows <= 600; ++rows) {
      const size_t together = RowsTogether(rows, kHeads, threads);
      const size_t items = (rows + together - 1) / together * kHeads;
      EXPECT_TRUE(together == 1 || items >= 4 * threads) << rows << " rows, " << threads;
    }
  }
}

TEST(RowsTogether, ManyRowsGoSixteenAtATime) {
  EXPECT_EQ(RowsTogether(1, kHeads, kThreads), 1u);
  EXPECT_EQ(RowsTogether(16, kHeads, kThreads), 1u);
  EXPECT_EQ(RowsTogether(17, kHeads, kThreads), 16u);  // two groups of eight heads
  EXPECT_EQ(RowsTogether(512, kHeads, kThreads), 16u);
}

// One layer without rope, norm and scale.
DecoderSpec Bare() {
  DecoderSpec spec;
  spec.layer_specs.resize(1);
  spec.layer_specs[0].rope = -1;
  return spec;
}

TEST(ChangesQueries, WithoutRopeNormAndScaleTheyStayAsProjected) {
  EXPECT_FALSE(ChangesQueries(Bare(), 0));
}

TEST(ChangesQueries, ARopeAScaleOrANormChangesThem) {
  DecoderSpec rotated = Bare(), scaled = Bare(), normed = Bare();
  rotated.layer_specs[0].rope = 0;
  EXPECT_TRUE(ChangesQueries(rotated, 0));
  scaled.layer_specs[0].scales_queries = true;
  EXPECT_TRUE(ChangesQueries(scaled, 0));
  normed.qk_norm = QkNorm::kPerHead;
  EXPECT_TRUE(ChangesQueries(normed, 0));
  normed.qk_norm = QkNorm::kWhole;
  EXPECT_TRUE(ChangesQueries(normed, 0));
}

TEST(ChangesQueries, ALayerMayLackTheNormOfTheOthers) {
  DecoderSpec spec = Bare();
  spec.qk_norm = QkNorm::kPerHead;
  spec.layer_specs[0].qk_norm = false;
  EXPECT_FALSE(ChangesQueries(spec, 0));
}

}  // namespace
}  // namespace pinion
