#include "harness/report/charts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/report/launch_forms.h"
#include "harness/report/page_parts.h"
#include "harness/report/words.h"
#include "planted.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;

// The values of `key` over all rows of a chart.
std::multiset<std::string> Texts(const Chart& chart, const char* key) {
  std::multiset<std::string> texts;
  for (const Json& row : chart.values.array()) texts.insert(row.Find(key)->string());
  return texts;
}

TEST(Charts, EachHasItsSpecificationAndConclusion) {
  const PageParts parts = ReadPageParts(FindPageParts().value()).value();
  std::set<std::string> seen;
  for (const Results& results : {PlantedResults(), ManyResults(40)})
    for (const Chart& chart : ChartsOf(results)) {
      EXPECT_TRUE(parts.specs.count(chart.name)) << chart.name;
      EXPECT_FALSE(chart.title.empty()) << chart.name;
      EXPECT_TRUE(chart.conclusion.ends_with('.')) << chart.name << ": " << chart.conclusion;
      seen.insert(chart.name);
    }
  for (const auto& [name, spec] : parts.specs)
    EXPECT_TRUE(seen.count(name)) << "no test draws " << name;
}

TEST(Charts, AreLeftOutWithAReasonIfThereIsNothingToDraw) {
  EXPECT_TRUE(ChartsOf(FailedResults()).empty());
  for (const Results& results : {PlantedResults(), FailedResults(), SingleResult(), Results()})
    for (const Chart& chart : AllCharts(results)) {
      EXPECT_EQ(chart.absent.empty(), !chart.values.array().empty()) << chart.name;
      EXPECT_FALSE(chart.absent.ends_with('.')) << chart.absent;
    }
  for (const Chart& chart : ChartsOf(SingleResult())) {
    EXPECT_NE(chart.name, "paired");
    EXPECT_NE(chart.name, "importance");
    EXPECT_NE(chart.name, "scaling");
  }
}

TEST(FrontierChart, MarksPointsThatNoOtherBeats) {
  const Chart chart = FrontierChart(PlantedResults());
  ASSERT_EQ(chart.values.array().size(), 6u);  // 3 measured, 2 concurrencies
  for (const Json& row : chart.values.array())
    EXPECT_EQ(row.Find("front")->string(),
              row.Find("role")->string() == "recommended" ? "on" : "off");
  EXPECT_THAT(chart.conclusion, HasSubstr("1 of 3 configurations touches the Pareto front"));
  EXPECT_THAT(chart.conclusion, HasSubstr("threads_bind=0-1, isa=avx2 with 8 clients"));
}

TEST(FrontierChart, RingsPointsThatMayBelongToTheFront) {
  const Results results = CloseResults();
  const Candidate &second = results.candidates[1], &third = results.candidates[2];
  const Chart chart = FrontierChart(results);
  for (const Json& row : chart.values.array()) {
    const std::string name = row.Find("configuration")->string();
    EXPECT_EQ(row.Find("front")->string(), name == SettingsText(second)  ? "on"
                                           : name == SettingsText(third) ? "possible"
                                                                         : "off");
    EXPECT_LT(row.Find("tokens_low")->number(), row.Find("tokens_per_s")->number());
    EXPECT_GT(row.Find("latency_high")->number(), row.Find("latency_s")->number());
  }
  EXPECT_THAT(
      chart.conclusion,
      HasSubstr("1 of 3 configurations touches the Pareto front (dashed); 1 more may "
                "belong to it (dotted rings): the points that beat them may do so by chance;"));
}

// Open loops have points and a line of their own, and may be the highest.
TEST(FrontierChart, ShowsMeasurementsAtRequestRates) {
  Results results = PlantedResults();
  results.definition.workload.rates = {2.5};
  for (const size_t id : {0, 1})
    for (const auto& [metric, value] : {std::pair("e2el_s", 9.0), {"output_tokens_per_s", 900.0}})
      results.candidates[id].series.push_back(
          {metric,
           LoadLevel::AtRate(2.5),
           {{1, false, value * static_cast<double>(id + 1), false}},
           {6, value * static_cast<double>(id + 1), 0, {}}});
  const Chart chart = FrontierChart(results);
  EXPECT_EQ(chart.values.array().size(), 8u);
  EXPECT_EQ(Texts(chart, "loop").count("open"), 2u);
  EXPECT_EQ(Texts(chart, "load").count("2.5 requests/s"), 2u);
  EXPECT_EQ(Texts(chart, "load").count("1 client"), 3u);
  EXPECT_THAT(chart.conclusion, HasSubstr("comes from threads_bind=0-1, isa=avx2 at 2.5 requests/s."
                                          " Diamonds mark open loops (fixed request rates)."));
  EXPECT_THAT(FrontierChart(PlantedResults()).conclusion, testing::Not(HasSubstr("Diamonds")));
}

TEST(FrontierChart, DrawsOnlyTheFrontAndTheBestOfManyConfigurations) {
  const Chart chart = FrontierChart(ManyResults(300));
  EXPECT_LE(chart.values.array().size(), 4 * kChartCandidates);
  EXPECT_TRUE(Texts(chart, "role").count("default"));
  EXPECT_TRUE(Texts(chart, "role").count("recommended"));
  EXPECT_THAT(chart.conclusion, HasSubstr("Shown: the front and the 24 best"));
}

TEST(FrontierChart, DrawsTheFrontAloneBeforeAnythingIsCompared) {
  Results results = PlantedResults();
  for (Candidate& candidate : results.candidates) {
    candidate.is_baseline = false;
    candidate.comparisons.clear();
  }
  results.verdicts.clear();
  EXPECT_THAT(FrontierChart(results).conclusion, HasSubstr("Shown: the front."));
}

TEST(BindingChart, ShowsTheBestOfACell) {
  const Chart chart = BindingChart(PlantedResults());
  ASSERT_EQ(chart.values.array().size(), 3u);
  EXPECT_EQ(Texts(chart, "text"), (std::multiset<std::string>{"+42.0 %", "-17.0 %", "defaults"}));
  EXPECT_THAT(chart.conclusion, HasSubstr("0-1 with 2 threads leads (+42.0 %)"));
}

TEST(ScalingChart, ComparesWithTheFewestThreads) {
  const Chart chart = ScalingChart(PlantedResults());
  ASSERT_EQ(chart.values.array().size(), 2u);
  EXPECT_EQ(
      chart.conclusion,
      "2 threads give 1.42 times the output of 1: an efficiency of 71 %. Dashed: ideal scaling.");
}

TEST(ImportanceChart, OrdersSettingsByTheirEffect) {
  const Chart chart = ImportanceChart(PlantedResults());
  // avx2 was measured only with threads_bind=0-1, so both get its 42 %; nobind is the worst value.
  EXPECT_THAT(chart.conclusion, HasSubstr("threads_bind matters most for balanced"));
  EXPECT_NEAR(chart.values.array()[0].Find("percent")->number(), (1.42 / 0.83 - 1) * 100, 1e-6);
}

TEST(PairedChart, CountsTheRoundsInWhichTheBestWasAhead) {
  EXPECT_THAT(PairedChart(PlantedResults()).conclusion,
              HasSubstr("threads_bind=0-1, isa=avx2 was ahead in 6 of 6"));
}

TEST(PredictedChart, StatesTheReachedShareOfThePrediction) {
  const Chart chart = PredictedChart(PlantedResults());
  EXPECT_EQ(chart.values.array().size(), 3u);
  EXPECT_THAT(chart.conclusion, HasSubstr("reached 27 to 64 % of it"));
}

TEST(RaceChart, CountsDroppedConfigurationsAndTheTrialsSaved) {
  const Chart chart = RaceChart(PlantedResults());
  EXPECT_EQ(Texts(chart, "state"), (std::multiset<std::string>{"dropped", "kept", "kept"}));
  EXPECT_THAT(chart.conclusion,
              HasSubstr("1 of 3 configurations was dropped early: the race ran 100 %"));
  EXPECT_TRUE(RaceChart(SingleResult()).values.array().empty());
}

TEST(DriftChart, CountsDisturbedTrialsAndNamesTheirCauses) {
  const Chart chart = DriftChart(PlantedResults());
  EXPECT_THAT(chart.conclusion, HasSubstr("other work on the machine disturbed 1 of 6"));
  EXPECT_THAT(chart.conclusion, HasSubstr("steal up to 1.2 %, CPU pressure up to 4 %"));
  Results results = PlantedResults();
  for (Series& series : results.candidates[0].series)
    if (series.metric == "output_tokens_per_s") series.samples[0].value /= 20;
  EXPECT_THAT(DriftChart(results).conclusion, HasSubstr("moved by a factor of 20"));
}

TEST(DriftChart, IsAbsentIfNothingButASearchWasRun) {
  Results results = PlantedResults();
  results.definition.objectives = {Objective::kGoodput};
  results.definition.workload.batch = false;
  results.definition.workload.concurrency.clear();
  results.definition.workload.rates.clear();
  EXPECT_THAT(DriftChart(results).absent, HasSubstr("neither a batch nor a loop"));
}

TEST(RooflineChart, PutsEveryPhaseUnderTheRoofOfItsThreads) {
  const Chart chart = RooflineChart(PlantedResults());
  EXPECT_EQ(Texts(chart, "kind").count("roof"), 6u);   // 1 and 2 threads, three corners each
  EXPECT_EQ(Texts(chart, "kind").count("point"), 6u);  // 3 measured, 2 phases
  // 1.42 * 20 GB/s of 50, 1.42 * 128 GFLOP/s of 400.
  EXPECT_THAT(chart.conclusion, HasSubstr("decode reaches 57 % of the memory limit (28.4 GB/s)"));
  EXPECT_THAT(chart.conclusion,
              HasSubstr("prefill reaches 45 % of the arithmetic limit (182 GFLOP/s)"));
  for (const Json& row : chart.values.array()) {
    if (row.Find("kind")->string() != "point") continue;
    const bool prefill = row.Find("phase")->string() == "prefill";
    EXPECT_NEAR(row.Find("intensity")->number(), prefill ? 128 : 1, 1e-9);
  }
}

TEST(RooflineChart, IntegerConfigurationsLieUnderTheIntegerRoof) {
  Results results = PlantedResults();
  for (Candidate& candidate : results.candidates) {
    const auto floats =
        std::find_if(candidate.series.begin(), candidate.series.end(),
                     [](const Series& series) { return series.metric == "ceiling_flops_per_s"; });
    if (floats == candidate.series.end()) continue;
    Series integers = *floats;
    integers.metric = "ceiling_int8_ops_per_s";
    floats->estimate.median /= 4;  // below the rate that prefill reached
    candidate.series.push_back(std::move(integers));
  }
  const Chart chart = RooflineChart(results);
  EXPECT_THAT(chart.conclusion, HasSubstr("prefill reaches 45 % of the arithmetic limit"));
  EXPECT_TRUE(Texts(chart, "roof").count("avx512_bf16 in int8, 2 threads"));
}

TEST(RooflineChart, NamesRoofsThatAlmostCoincideOnce) {
  Results results = PlantedResults();
  EXPECT_EQ(Texts(RooflineChart(results), "kind").count("label"), 2u);
  results.candidates[2].isa = "avx512_vnni";  // with the roof of avx512_bf16
  const Chart chart = RooflineChart(results);
  EXPECT_EQ(Texts(chart, "kind").count("label"), 2u);
  EXPECT_TRUE(Texts(chart, "roof").count("avx512_bf16, 2 threads · avx512_vnni, 2 threads"));
}

TEST(RooflineChart, SaysWhyThereAreNoCeilings) {
  Results results = PlantedResults();
  for (Candidate& candidate : results.candidates)
    std::erase_if(candidate.series,
                  [](const Series& series) { return series.metric.starts_with("ceiling"); });
  results.candidates[0].no_ceilings_because = "only 1.0 GiB are free";
  EXPECT_EQ(RooflineChart(results).absent, "the ceilings were not measured: only 1.0 GiB are free");
}

// Two candidates bind to CPUs and one takes another ISA path; goodput is 5 requests/s times speed.
TEST(GoodputChart, HasEveryValueOfEverySettingWithItsMedian) {
  const Chart chart = GoodputChart(PlantedResults());
  std::map<std::string, double> loads;
  for (const Json& row : chart.values.array())
    loads[row.Find("label")->string()] = row.Find("load")->number();
  EXPECT_EQ(loads.size(), 5u);
  EXPECT_NEAR(loads.at("threads_bind=default"), 5, 1e-9);
  EXPECT_NEAR(loads.at("threads_bind=0-1"), 5 * 1.42, 1e-9);
  EXPECT_NEAR(loads.at("threads_bind=nobind"), 5 * 0.83, 1e-9);
  EXPECT_NEAR(loads.at("isa=default"), 5 * (1 + 0.83) / 2, 1e-9);
  EXPECT_NEAR(loads.at("isa=avx2"), 5 * 1.42, 1e-9);
  EXPECT_THAT(chart.conclusion, HasSubstr("threads_bind=0-1 carries 7.1 requests/s within the SLO, "
                                          "threads_bind=nobind 4.15"));
  Results results = PlantedResults();
  results.definition.workload.slo.reset();
  EXPECT_EQ(GoodputChart(results).absent, "the sweep had no SLO to search for");
}

TEST(SloChart, NamesTheLargestThatPassesAndTheSmallestThatFails) {
  const Chart chart = SloChart(PlantedResults());
  EXPECT_EQ(Texts(chart, "boundary"),
            (std::multiset<std::string>{"largest passing", "largest passing", "smallest failing",
                                        "smallest failing", "tried", "tried", "tried", "tried"}));
  EXPECT_THAT(chart.conclusion, HasSubstr("the defaults: passes 4 requests/s, fails 6 requests/s, "
                                          "a cliff"));
}

TEST(KvChart, ShowsPreemptionsAndPrefixHits) {
  Results results = PlantedResults();
  EXPECT_EQ(KvChart(results).absent, "every configuration has the same KV space");
  results.candidates[1].configuration.options.kv_cache_bytes = uint64_t{4} << 30;
  const Chart chart = KvChart(results);
  ASSERT_EQ(chart.values.array().size(), 4u);  // auto and 4 GiB, 1 and 8 clients
  EXPECT_THAT(chart.conclusion, HasSubstr("sequences were preempted"));
  EXPECT_TRUE(Texts(chart, "text").count("325 tokens/s\n80 % used\n25 % prefix hits\n3 preempted"));
}

TEST(KvChart, SequencesThatFewTrialsPreemptedAreNotNone) {
  Results results = PlantedResults();
  results.candidates[1].configuration.options.kv_cache_bytes = uint64_t{4} << 30;
  for (Candidate& candidate : results.candidates)
    for (Series& series : candidate.series)
      if (series.metric == "preemptions") {
        series.estimate.median = 0;
        for (Sample& sample : series.samples) sample.value = 0;
      }
  EXPECT_THAT(KvChart(results).conclusion, HasSubstr("no sequence was preempted"));
  for (Candidate& candidate : results.candidates)
    for (Series& series : candidate.series)
      if (series.metric == "preemptions") series.samples[0].value = 1;
  EXPECT_THAT(KvChart(results).conclusion, HasSubstr("; sequences were preempted"));
}

TEST(KvChart, ReportsUncountedValuesAsUnknownNotAsZero) {
  Results results = PlantedResults();
  results.candidates[1].configuration.options.kv_cache_bytes = uint64_t{4} << 30;
  for (Candidate& candidate : results.candidates)
    std::erase_if(candidate.series, [](const Series& series) {
      return series.metric == "kv_used_share" || series.metric == "preemptions";
    });
  const Chart chart = KvChart(results);
  EXPECT_TRUE(Texts(chart, "text").count("325 tokens/s\n25 % prefix hits"));
  EXPECT_THAT(chart.conclusion, HasSubstr("whether sequences were preempted is unknown"));
  EXPECT_THAT(chart.conclusion, HasSubstr("the cache's fill is unknown"));
}

TEST(DistributionChart, ShowsOnlyQuantilesThatTheRequestsSupport) {
  Results results = PlantedResults();
  EXPECT_EQ(DistributionChart(results).values.array().size(), 8u);
  EXPECT_TRUE(Texts(DistributionChart(results), "range").count("5 to 95 % of 96"));
  results.candidates[0].distributions[0].n = 12;
  EXPECT_TRUE(Texts(DistributionChart(results), "range").count("25 to 75 % of 12"));
}

TEST(PlacementChart, ShowsTheRankOfEveryCpu) {
  Results results = PlantedResults();
  results.machine.Set("nodes",
                      *Json::Parse(R"([{"id":0,"cpu_list":"0-1"},{"id":1,"cpu_list":"2-3"}])"));
  results.budget.Set("cpus", std::vector<int>{0, 1, 2});
  const Chart chart = PlacementChart(results);
  EXPECT_EQ(Texts(chart, "worker"),
            (std::multiset<std::string>{"idle", "not allowed", "rank 0", "rank 0"}));
  EXPECT_THAT(chart.conclusion, HasSubstr("2 of 4 CPUs compute, on 2 NUMA nodes"));
}

TEST(LaunchForms, ReplicasAreOneServer) {
  Results results = PlantedResults();
  const int winner = results.verdicts[0].recommended;
  Candidate& candidate = results.candidates[static_cast<size_t>(winner)];
  candidate.configuration.replicas = 2;
  candidate.plan.ranks = {{0, {0}, {}, 1}, {1, {1}, {}, 1}};
  std::map<std::string, std::string> forms;
  for (const LaunchForm& form : LaunchForms(results, results.verdicts[0], "/out/x"))
    forms[form.title] = form.text;
  EXPECT_EQ(forms["Pinion"], "build/pinion launch /out/x/profiles/throughput.json");
  EXPECT_THAT(forms["systemd unit"], HasSubstr("AllowedCPUs=0-1\n"));
  EXPECT_THAT(forms["vLLM"], HasSubstr("VLLM_CPU_OMP_THREADS_BIND='0|1' "));
  EXPECT_THAT(forms["vLLM"], HasSubstr(" --data-parallel-size 2"));
}

TEST(LaunchForms, NameProfileProgramAndCpus) {
  const Results results = PlantedResults();
  std::map<std::string, std::string> forms;
  for (const LaunchForm& form : LaunchForms(results, results.verdicts[0], "/out/x"))
    forms[form.title] = form.text;
  EXPECT_THAT(forms["Pinion"], HasSubstr("build/pinion launch /out/x/profiles/throughput.json"));
  EXPECT_THAT(forms["vLLM"], HasSubstr("VLLM_CPU_OMP_THREADS_BIND=0-1"));
  EXPECT_THAT(forms["systemd unit"], HasSubstr("AllowedCPUs=0-1\n"));
  EXPECT_THAT(forms["systemd unit"],
              HasSubstr("/build/pinion launch /out/x/profiles/throughput.json"));
  EXPECT_THAT(forms["systemd unit"], HasSubstr("WorkingDirectory=/"));
  EXPECT_THAT(forms["Container"], HasSubstr("--cpuset-cpus=0-1 --memory=4g"));
  EXPECT_THAT(forms["Slurm job"], HasSubstr("#SBATCH --cpus-per-task=2 --mem=4G"));
  EXPECT_TRUE(LaunchForms(FailedResults(), FailedResults().verdicts[0], "/out/x").empty());
}

// If builds race, the one that was measured is started.
TEST(LaunchForms, NameTheBuildThatWasMeasured) {
  Results results = PlantedResults();
  results.definition.engines[0].binary = "/opt/old/pinion";
  for (const LaunchForm& form : LaunchForms(results, results.verdicts[0], "/out/x")) {
    const bool has_program =
        form.title == "Pinion" || form.title == "systemd unit" || form.title == "Slurm job";
    EXPECT_EQ(form.text.find("/opt/old/pinion launch /out/x/") != std::string::npos, has_program)
        << form.title;
  }
}

TEST(LaunchForms, QuoteForTheProgramThatReadsThem) {
  Results results = PlantedResults();
  results.model = "a 50 % model\nExecStartPre=evil";
  std::map<std::string, std::string> forms;
  for (const LaunchForm& form : LaunchForms(results, results.verdicts[0], "/out/50 %/$x"))
    forms[form.title] = form.text;
  EXPECT_THAT(forms["systemd unit"],
              HasSubstr("launch \"/out/50 %%/$$x/profiles/throughput.json\"\n"));
  EXPECT_THAT(forms["systemd unit"], HasSubstr("profile of a 50 %% model ExecStartPre=evil\n"));
  EXPECT_THAT(forms["Slurm job"], HasSubstr("launch '/out/50 %/$x/profiles/throughput.json'\n"));
}

TEST(RunnerUpWords, NameItWithItsIntervalAgainstTheWinner) {
  Results results = PlantedResults();
  Verdict& verdict = results.verdicts[0];
  verdict.runner_up.reset();
  EXPECT_EQ(InWords(results, verdict).runner_up, "");
  verdict.runner_up = 0;
  verdict.runner_up_ratio = {10, 1.031, 0, Interval{1.012, 1.049, 0.979}};
  EXPECT_EQ(InWords(results, verdict).runner_up,
            "Runner-up: the defaults; against it the recommended one is at +3.1 % (97 % interval "
            "+1.2 to +4.9 %, 10 rounds)");
  results.verdicts[0].tied = {0};
  EXPECT_EQ(InWords(results, results.verdicts[0]).tied,
            "Not distinguishable from it: the defaults. The simpler one is recommended");
  EXPECT_EQ(Costs(results.candidates[1]), "2 threads, 2.9 GiB of peak memory");
}

}  // namespace
}  // namespace pinion::harness
