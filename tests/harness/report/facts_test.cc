#include "harness/report/facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planted.h"

namespace pinion::harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> Names(const TextTable& table) {
  std::vector<std::string> names;
  for (const TextTable::Row& row : table.rows) names.push_back(row.cells[0]);
  return names;
}

TEST(HygieneFacts, PutWarningsFirstWithTheirFixes) {
  const TextTable table = HygieneFacts(PlantedResults());
  EXPECT_THAT(Names(table), ElementsAre("governor", "quota", "turbo"));
  EXPECT_THAT(table.rows[0].cells,
              ElementsAre("governor", "warn", "powersave on 2 CPUs: clocks vary",
                          "cpupower frequency-set -g performance"));
  EXPECT_EQ(table.rows[2].cells[2], "no driver says");
  EXPECT_THAT(HygieneFacts(Results()).note, HasSubstr("Not recorded"));
}

TEST(EnvironmentFacts, FlattenTheRecordedProvenance) {
  EXPECT_THAT(
      Names(EnvironmentFacts(PlantedResults())),
      ElementsAre("compiler.version", "compiler.openmp", "kernel.release", "engine.commit"));
  EXPECT_EQ(EnvironmentFacts(Results()).note, "Not recorded.");
}

TEST(TimeFacts, SumUpConfigurationsThatAreNotShown) {
  const TextTable few = TimeFacts(PlantedResults()), many = TimeFacts(ManyResults(40));
  EXPECT_EQ(few.rows.size(), 3u);
  ASSERT_EQ(many.rows.size(), 13u);
  EXPECT_EQ(many.rows.back().cells[0], "the other 28");
  EXPECT_THAT(TimeFacts(Results()).rows, IsEmpty());
}

TEST(TextTable, CannotBeBrokenByItsTexts) {
  const TextTable table{"T", "n", {"a|b", "c"}, {{{"<b>|", "x\ny"}}}};
  EXPECT_THAT(ToHtml(table, "h3").markup(), HasSubstr("&lt;b&gt;|"));
  EXPECT_EQ(ToMarkdown(table),
            "## T\n\nn\n\n| a\\|b | c |\n| --- | --- |\n| \\<b\\>\\| | x y |\n\n");
}

}  // namespace
}  // namespace pinion::harness
