// The tokens that a token sees decide the blocks that a plan reads.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/decoder/attention_plan.h"
#include "tests/engine/decoder/planned.h"

namespace pinion {
namespace {

using testing::Apart;
using testing::PlanOf;
using testing::TwoGroups;

// The kernel's result of the plan's items: each token sees its neighbours on both sides, as
// far as its sequence goes, whether or not contexts are cut.
TEST(AttentionPlan, LetsTokensSeeBothWays) {
  const StepBatch batch = Apart({{0, 1}, {0, 700}, {0, 40}});
  for (const int half : {0, 1, 8, 300, 5000}) {  // 0: no window
    const Reach reach = half == 0 ? Reach{.ahead = Reach::kWholeSequence}
                                  : Reach{.window = 2 * half + 1, .ahead = half};
    const AttentionPlan plan = PlanOf(batch, TwoGroups(), 4, 32, reach);
    std::map<std::pair<size_t, size_t>, size_t> tokens;  // that a row and group see
    for (const AttentionItem& item : plan.items)
      for (size_t i = item.first_query; i < item.first_query + item.queries; ++i) {
        const int64_t last = plan.queries[i].position;
        const int64_t first = half == 0 ? 0 : last - reach.window + 1;
        const int64_t begin = std::max<int64_t>(first, item.context_begin);
        const int64_t end = std::min<int64_t>(last + 1, item.context_end);
        tokens[{plan.queries[i].row, item.group}] +=
            static_cast<size_t>(std::max<int64_t>(0, end - begin));
      }
    for (const auto& slice : batch.slices)
      for (size_t at = 0; at < slice.rows; ++at) {
        const size_t reached = half == 0 ? slice.rows : static_cast<size_t>(half);
        const size_t begin = at > reached ? at - reached : 0;
        const size_t want = std::min(slice.rows, at + reached + 1) - begin;
        for (size_t group = 0; group < 2; ++group)
          ASSERT_EQ((tokens[{slice.first_row + at, group}]), want) << at << ", " << half;
      }
  }
}

TEST(AttentionPlan, SkipsBlocksWhollyBeforeTheWindow) {
  const AttentionPlan plan =
      PlanOf(Apart({{1000, 1}, {5, 1}}), TwoGroups(), 1, 32, {.window = 100});
  ASSERT_EQ(plan.items.size(), 4u);
  for (const AttentionItem& item : plan.items) {  // position 1000 sees 901 to 1000
    EXPECT_EQ(item.context_begin, item.slice == 0 ? 896u : 0u);
    EXPECT_EQ(item.context_end, item.slice == 0 ? 1001u : 6u);
  }
}

// They are computed elsewhere (forward_index.cc).
TEST(AttentionPlan, LeavesOutRowsThatChooseTheirTokens) {
  const AttentionPlan plan =
      PlanOf(Apart({{90, 20}, {99, 1}, {100, 1}}), TwoGroups(), 1, 32, {.chosen = 100});
  std::set<uint32_t> rows;
  for (const QueryToken& query : plan.queries) rows.insert(query.row);
  EXPECT_EQ(rows.size(), 11u);
  EXPECT_EQ(*rows.rbegin(), 20u);
  for (const QueryToken& query : plan.queries) EXPECT_LT(query.position, 100u);
}

}  // namespace
}  // namespace pinion
