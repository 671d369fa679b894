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

TEST(CounterFacts, ShowWhatWasCountedAndNameWhatWasNotOnce) {
  Results results = PlantedResults();
  EXPECT_EQ(CounterFacts(results).note,
            "energy: not available, because rapl: no package; to enable it: modprobe "
            "intel_rapl_msr.");
  EXPECT_THAT(CounterFacts(results).rows, IsEmpty());
  for (const auto& [metric, value] :
       {std::pair("memory_remote_bytes_per_s", 12.5e9), std::pair("frequency_hz", 3.1e9)})
    results.candidates[1].series.push_back({metric, 0, {}, Estimate{3, value, 0, std::nullopt}});
  const TextTable table = CounterFacts(results);
  EXPECT_THAT(table.head, ElementsAre("configuration", "from other nodes", "frequency"));
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.rows[0].cells[1], "12.5 GB/s");
  EXPECT_EQ(table.rows[0].cells[2], "3.10 GHz");
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
