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

TEST(CounterFacts, ShowCountsAndNameMissingCountersOnce) {
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

TEST(LoadFacts, StateTheBeginningOfTheWindowsAndTheReasonOfTheirEnd) {
  Results results = PlantedResults();
  EXPECT_EQ(LoadFacts(results).note, "No trial has ended yet.");
  results.candidates[1].series.push_back(
      {"generator_cpu_share", 0, {{1, false, 0.018, false}}, Estimate{1, 0.018, 0, std::nullopt}});
  results.loads.each = {{8, 12, 1, 3, 0.52, 6.25, 31},
                        {LoadLevel::AtRate(2.5), 12, 12, {}, {}, {}, 9}};
  results.loads.warm_up_s = 1.5;
  results.loads.trials = results.loads.apart = 12;
  const TextTable table = LoadFacts(results);
  EXPECT_THAT(table.note, HasSubstr("on CPUs that neither engine nor front end use, took at most "
                                    "1.8 % of a core. Warm-ups took 1.50 s of a trial."));
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_THAT(table.rows[0].cells,
              ElementsAre("8 clients", "520 ms", "6.25 s", "31", "12", "3", "1"));
  EXPECT_THAT(table.rows[1].cells, ElementsAre("2.5 requests/s", "-", "-", "9", "12", "-", "12"));
  results.loads.apart = 0;
  EXPECT_THAT(LoadFacts(results).note, HasSubstr("on the server's CPUs, took at most"));
}

// Seven rounds in which the configuration is `gain` times as good as the defaults.
Candidate Tried(std::vector<Setting> settings, double gain, double preemptions) {
  Candidate candidate;
  candidate.engine = "pinion";
  candidate.settings = std::move(settings);
  candidate.configuration = ConfigurationOf(candidate.settings);
  candidate.label = Label(candidate.settings);
  candidate.is_baseline = candidate.settings.empty();
  candidate.trials = 7;
  Series counts{"preemptions", 8, {}, Estimate{7, preemptions, 0, std::nullopt}};
  counts.samples = {{1, false, preemptions, false}};
  candidate.series.push_back(counts);
  Comparison comparison;
  for (int round = 1; round <= 7 && !candidate.is_baseline; ++round)
    comparison.ratios.push_back({round, false, gain * (1 + 0.001 * round), false});
  candidate.comparisons = {comparison};
  return candidate;
}

Results OfTwoSettings() {
  Results results;
  results.definition.objectives = {Objective::kThroughput};
  results.floors = {0.02};
  const Setting reserve{"reserved_cpus", "1"}, none{"reserved_cpus", "0"},
      space{"kv_cache_space", "0.25"};
  results.candidates = {Tried({}, 1, 9), Tried({reserve}, 0.5, 5), Tried({none, space}, 3, 0),
                        Tried({reserve, space}, 1, 1)};
  results.candidates[0].same_as = {"reserved_cpus=0"};  // which the defaults come to here
  return results;
}

TEST(EffectFacts, CompareConfigurationsThatDifferInOneSettingAlone) {
  const TextTable table = EffectFacts(OfTwoSettings());
  EXPECT_THAT(table.head, ElementsAre("setting", "from", "to", "throughput", "preemptions"));
  ASSERT_EQ(table.rows.size(), 2u);
  // Of the defaults half as good, of those with more space a third: the mean of both in logs.
  EXPECT_THAT(table.rows[0].cells[0], "reserved_cpus");
  EXPECT_THAT(table.rows[0].cells[3], HasSubstr("-59"));
  EXPECT_EQ(table.rows[0].cells[4], "4.5 to 3") << "of both pairs";
  // Three times of the defaults, twice of those with a reserved CPU.
  EXPECT_THAT(table.rows[1].cells,
              ElementsAre("kv_cache_space", testing::_, "256 MiB", HasSubstr("+145"), "7 to 0.5"));
  EXPECT_TRUE(table.rows[0].stands_out && table.rows[1].stands_out);
}

TEST(EffectFacts, RoundsThatOnlyOneOfAPairHasDoNotCount) {
  Results results = OfTwoSettings();
  results.candidates.resize(2);
  results.candidates[1].comparisons[0].ratios.resize(3);
  const TextTable table = EffectFacts(results);
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_THAT(table.rows[0].cells[3], HasSubstr("no interval (n = 3)"));
  EXPECT_FALSE(table.rows[0].stands_out) << "without an interval";
  // Neither is the baseline, and either may have fewer.
  for (const size_t shorter : {2, 3}) {
    results = OfTwoSettings();
    results.candidates[shorter].comparisons[0].ratios.resize(3);
    results.candidates.erase(results.candidates.begin() + 1);
    for (const TextTable::Row& row : EffectFacts(results).rows)
      if (row.cells[0] == "reserved_cpus") {
        EXPECT_THAT(row.cells[3], HasSubstr("no interval (n = 3)")) << shorter;
      }
    EXPECT_THAT(Names(EffectFacts(results)), testing::Contains("reserved_cpus"));
  }
}

// Every configuration states every setting, and none of their values is the default.
TEST(EffectFacts, CompareWithTheFirstValueIfNoneIsTheDefault) {
  Results results = OfTwoSettings();
  const auto space = [](const char* gib) { return Setting{"kv_cache_space", gib}; };
  const Setting none{"reserved_cpus", "0"}, reserve{"reserved_cpus", "1"};
  results.candidates = {Tried({}, 1, 0), Tried({none, space("1")}, 1, 0),
                        Tried({none, space("2")}, 2, 0), Tried({none, space("4")}, 4, 0),
                        Tried({reserve, space("1")}, 0.5, 0)};
  const TextTable table = EffectFacts(results);
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_THAT(Names(table), ElementsAre("kv_cache_space", "kv_cache_space", "reserved_cpus"));
  EXPECT_THAT(table.rows[0].cells, testing::Contains(HasSubstr("+100")));
  EXPECT_THAT(table.rows[1].cells, testing::Contains(HasSubstr("+300"))) << "of the first value";
  EXPECT_THAT(table.rows[2].cells, testing::Contains(HasSubstr("-50")));
}

TEST(EffectFacts, PreemptionsInFewTrialsAreNotNone) {
  Results results = OfTwoSettings();
  results.candidates.resize(2);
  results.candidates[0].series[0].samples = {{1, false, 0, false}};
  Series& few = results.candidates[1].series[0];
  few.estimate.median = 0;
  few.samples.assign(4, {1, false, 0, false});
  few.samples[2].value = 1;
  EXPECT_EQ(EffectFacts(results).rows[0].cells[4], "0 to 0.25");
}

TEST(EffectFacts, NothingIsSaidOfOtherPairs) {
  Results results = OfTwoSettings();
  results.candidates.erase(results.candidates.begin() + 1, results.candidates.begin() + 3);
  EXPECT_THAT(EffectFacts(results).rows, IsEmpty()) << "they differ in two settings";
  results = OfTwoSettings();
  for (size_t i = 1; i < results.candidates.size(); ++i) results.candidates[i].engine = "other";
  results.candidates.resize(3);
  EXPECT_THAT(EffectFacts(results).rows, IsEmpty()) << "they are of different engines";
  results = OfTwoSettings();
  results.floors = {0.9};  // of logs: a factor of 1.9
  results.candidates.resize(2);
  EXPECT_TRUE(EffectFacts(results).rows[0].stands_out);
  results.floors = {1.1};
  EXPECT_FALSE(EffectFacts(results).rows[0].stands_out) << "the noise alone is larger";
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
