#include "harness/report/side_by_side.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planted.h"

namespace pinion::harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Kind = MetricDifference::Kind;

MetricDifference Difference(double ratio, Kind kind) {
  return {"default", "ttft_s",    8,
          0.2,       0.2 / ratio, {8, ratio, 0, Interval{ratio - 0.02, ratio + 0.02, 0.96}},
          0.01,      kind};
}

RunComparison Comparable() {
  RunComparison comparison{"out/a", "out/b", "", "", 0.02, {}, {}, {}};
  comparison.differences = {Difference(0.88, Kind::kWorse), Difference(1.001, Kind::kSame)};
  return comparison;
}

const TextTable& Find(const std::vector<TextTable>& tables, const std::string& title) {
  for (const TextTable& table : tables)
    if (table.title.starts_with(title)) return table;
  ADD_FAILURE() << title;
  return tables.front();
}

TEST(SideBySide, StatesChangesAndTheNewRecommendation) {
  const Results a = PlantedResults();
  Results b = PlantedResults();
  b.verdicts[0].recommended = 0;
  b.verdicts[0].outcome = Outcome::kBaselineBest;
  b.provenance.Set("kernel", Json::Object{{"release", "6.8"}});
  b.candidates.pop_back();
  const RunComparison comparison = Comparable();
  EXPECT_EQ(SideAnswer(a, b, comparison),
            "Of 2 figures 0 are better and 1 is worse in B. They recommend different "
            "configurations for throughput.");
  const auto tables = SideTables(a, b, comparison);
  const TextTable& verdicts = Find(tables, "Recommendations");
  EXPECT_TRUE(verdicts.rows[0].stands_out);
  EXPECT_FALSE(verdicts.rows[1].stands_out);
  EXPECT_THAT(Find(tables, "Environment").rows[0].cells,
              ElementsAre("kernel.release", "6.1", "6.8"));
  EXPECT_THAT(Find(tables, "Configurations").rows[0].cells,
              ElementsAre("max_num_seqs=16", "A", "pending"));
  const TextTable& figures = Find(tables, "Figures");
  EXPECT_THAT(figures.rows[0].cells,
              ElementsAre("the defaults", "ttft_s, 8 clients", "200 ms", "227 ms", "-12.0 %",
                          "-14.0 to -10.0 %", "1.0 %", "8", "worse"));
  EXPECT_TRUE(figures.rows[0].stands_out);
  EXPECT_FALSE(figures.rows[1].stands_out);
}

TEST(SideBySide, NamesObstaclesToAVerdictAndStillShowsFigures) {
  RunComparison comparison{"out/a", "out/b", "", "", 0.02, {}, {}, {"the model is x in one"}};
  const Results results = PlantedResults();
  EXPECT_EQ(SideAnswer(results, results, comparison),
            "No verdict between the two: the model is x in one. Their recommendations do not "
            "contradict each other.");
  comparison.obstacles.push_back("the seed is 1 in one");
  EXPECT_THAT(SideAnswer(results, results, comparison), HasSubstr("the two, for 2 reasons."));
  EXPECT_THAT(SideText(results, results, comparison, "md").value(), HasSubstr("- the seed is 1"));
  const auto tables = SideTables(results, results, comparison);
  const TextTable& figures = Find(tables, "Figures, without a verdict");
  EXPECT_THAT(figures.rows[0].cells, ElementsAre("the defaults", "output_tokens_per_s",
                                                 "512 tokens/s [502 to 522 tokens/s]",
                                                 "512 tokens/s [502 to 522 tokens/s]"));
  EXPECT_EQ(Find(tables, "Environment").note, "The same in both.");
}

TEST(SideBySide, EveryFormatHoldsTheFigures) {
  const Results results = PlantedResults("<i>&");
  const RunComparison comparison = Comparable();
  const auto text = [&](const char* format) {
    return SideText(results, results, comparison, format);
  };
  EXPECT_THAT(text("html").value(), HasSubstr("<td>227 ms</td>"));
  EXPECT_THAT(text("html").value(), Not(HasSubstr("<i>")));
  EXPECT_THAT(text("md").value(), HasSubstr("| 227 ms |"));
  const Json json = Json::Parse(text("json").value()).value();
  EXPECT_EQ(json.Find("comparison")->Find("worse")->integer(), 1);
  EXPECT_EQ(json.Find("recommended")->array().size(), 3u);
  EXPECT_THAT(text("csv").error().message, HasSubstr("html, md, json"));
}

}  // namespace
}  // namespace pinion::harness
