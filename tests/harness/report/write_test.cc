#include "harness/report/write.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/profile/profile.h"
#include "harness/report/charts.h"
#include "harness/report/export.h"
#include "harness/report/facts.h"
#include "harness/report/markdown.h"
#include "harness/report/page.h"
#include "harness/report/pictures.h"
#include "harness/report/recommend.h"
#include "harness/report/words.h"
#include "planted.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;
using testing::Not;

// A temporary folder for the test.
class Outputs : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "pinion-report-XXXXXX").string();
    ASSERT_TRUE(mkdtemp(name.data()));
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Read(const std::string& name) const {
    auto text = ReadFile(folder_ + "/" + name);
    return text ? *text : "cannot read: " + text.error().message;
  }
  std::string folder_;
};

// Rows of fields, by RFC 4180.
std::vector<std::vector<std::string>> ParseCsv(const std::string& text) {
  std::vector<std::vector<std::string>> rows(1, {""});
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    std::string& field = rows.back().back();
    if (quoted && text[i] == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      field += text[++i];
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && text[i] == ',') {
      rows.back().emplace_back();
    } else if (!quoted && text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') {
      ++i;
      rows.emplace_back(1, "");
    } else {
      field += text[i];
    }
  }
  EXPECT_FALSE(quoted);
  rows.pop_back();  // after the last line's end
  return rows;
}

TEST_F(Outputs, AllFilesAreWritten) {
  const auto written = WriteOutputs(PlantedResults(), folder_);
  ASSERT_TRUE(written) << written.error().message;
  for (const char* name :
       {"results.json", "results.csv", "report.md", "report.html", "profiles/throughput.json",
        "profiles/latency.json", "profiles/balanced.json"})
    EXPECT_TRUE(std::filesystem::file_size(folder_ + "/" + name) > 0) << name;
}

TEST_F(Outputs, ProfilesReadBackAsTheRecommendedConfiguration) {
  const Results results = PlantedResults();
  ASSERT_TRUE(WriteOutputs(results, folder_));
  const auto winner = ReadProfile(folder_ + "/profiles/throughput.json");
  ASSERT_TRUE(winner) << winner.error().message;
  EXPECT_EQ(winner->configuration.options.threads_bind, "0-1");
  EXPECT_EQ(winner->configuration.options.model, "preset:tiny");
  EXPECT_EQ(winner->machine, results.machine);
  const auto unchanged = ReadProfile(folder_ + "/profiles/latency.json");
  ASSERT_TRUE(unchanged) << unchanged.error().message;
  EXPECT_EQ(unchanged->configuration.options.threads_bind, "auto");
  const Json* ratio = winner->evidence.Find("ratio_to_default");
  ASSERT_TRUE(ratio);
  EXPECT_DOUBLE_EQ(ratio->Find("median")->number(), 1.42);
}

TEST_F(Outputs, AnObjectiveWithoutDataLeavesNoProfileBehind) {
  Results results = PlantedResults();
  ASSERT_TRUE(WriteOutputs(results, folder_));
  results.verdicts[1].outcome = Outcome::kNoData;
  ASSERT_TRUE(WriteOutputs(results, folder_));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/profiles/latency.json"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/profiles/latency/k8s.yaml"));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/profiles/throughput.json"));
}

TEST_F(Outputs, FilesOfAProfileLieBesideItAndAreListed) {
  Results results = PlantedResults();
  ASSERT_TRUE(WriteOutputs(results, folder_));
  const std::string page = Read("report.html"), text = Read("report.md");
  for (const std::string name : {"k8s.yaml", "kubelet.yaml", "production-stack.yaml",
                                 "llm-d/kustomization.yaml", "grafana.json"}) {
    EXPECT_THAT(Read("profiles/throughput/" + name), Not(HasSubstr("cannot read")));
    EXPECT_THAT(page,
                HasSubstr(StrCat("<a href=\"profiles/throughput/", name, "\">", name, "</a>: ")));
    EXPECT_THAT(text, HasSubstr(StrCat("](profiles/throughput/", name, "): ")));
  }
  EXPECT_THAT(page,
              HasSubstr("<b>recipe</b>: none, because &quot;preset:tiny&quot; is no ORG/REPO "));
  EXPECT_THAT(text, HasSubstr("- recipe: none, because \"preset:tiny\" is no ORG/REPO "));
  EXPECT_EQ(PageSections(results, folder_, true).at("launch").find("href="), std::string::npos)
      << "the server of a live page has no such files";
  // The next state of the sweep can have a model with a recipe, and no size of its pods.
  results.model = "some-org/some-model";
  results.model_facts.Set("parameters", 1e9);
  results.model_facts.Set("active_parameters", 1e9);
  results.model_facts.Set("weight_bytes", 2e9);
  results.model_facts.Set("context_length", 2048);
  ASSERT_TRUE(WriteOutputs(results, folder_));
  EXPECT_THAT(Read("profiles/throughput/models/some-org/some-model.yaml"),
              HasSubstr("\n  model_id: \"some-org/some-model\"\n"));
  for (Candidate& candidate : results.candidates)
    std::erase_if(candidate.series,
                  [](const Series& one) { return one.metric == "peak_rss_bytes"; });
  ASSERT_TRUE(WriteOutputs(results, folder_));
  EXPECT_THAT(Read("profiles/throughput/k8s.yaml"), HasSubstr("cannot read"));
  EXPECT_THAT(Read("profiles/throughput/grafana.json"), Not(HasSubstr("cannot read")));
  results.model = "preset:tiny";
  ASSERT_TRUE(WriteOutputs(results, folder_));
  EXPECT_THAT(Read("profiles/throughput/models/some-org/some-model.yaml"), HasSubstr("cannot read"))
      << "a recipe of an earlier state";
}

TEST_F(Outputs, ReportLoadsNothingFromOutside) {
  ASSERT_TRUE(WriteOutputs(PlantedResults(), folder_));
  const std::string page = Read("report.html");
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  // Everything that a browser fetches unasked: attributes and styles with a URL, and imports.
  const std::string head_and_body = page.substr(0, page.find("<script>"));
  for (const char* loads : {"src=", "url(", "@import", "<link", "<iframe", "<img"})
    EXPECT_THAT(head_and_body, Not(HasSubstr(loads)));
  // Links are followed only if a person clicks on them, and lead to files beside the report.
  const std::string others =
      std::regex_replace(head_and_body, std::regex("<a href=\"profiles/[a-z0-9/.-]+\">"), "");
  EXPECT_THAT(others, Not(HasSubstr("href=")));
  EXPECT_THAT(page, Not(HasSubstr("<script src")));
  EXPECT_THAT(head_and_body, Not(HasSubstr("{{")));  // no placeholder was left
}

TEST_F(Outputs, HostileNamesNeverBecomeMarkup) {
  const std::string hostile =
      "</script><script>alert(1)</script>\"'&<img src=x onerror=alert(2)>{{title}}";
  const auto written = WriteOutputs(PlantedResults(hostile), folder_);
  ASSERT_TRUE(written) << written.error().message;
  const std::string page = Read("report.html");
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("<img src=x")));
  EXPECT_THAT(page, HasSubstr("preset:tiny&lt;/script&gt;"));
  const std::regex script("<script");
  const auto scripts = std::distance(std::sregex_iterator(page.begin(), page.end(), script), {});
  EXPECT_EQ(scripts, 3) << "data, libraries, page";
  EXPECT_TRUE(Json::Parse(Read("results.json")));
  EXPECT_THAT(Read("report.md"), Not(HasSubstr("<script>alert(1)</script>\\\"")));
}

TEST(ResultsCsvText, HasEveryCandidateAndOnlyFullRows) {
  const Results results = PlantedResults(",\"\r\n");
  const auto rows = ParseCsv(ResultsCsv(results));
  ASSERT_GT(rows.size(), results.candidates.size());
  std::set<std::string> seen;
  for (const auto& row : rows) {
    EXPECT_EQ(row.size(), rows[0].size());
    seen.insert(row[0]);
  }
  EXPECT_EQ(seen.size(), results.candidates.size() + 1);  // and the header
  EXPECT_EQ(rows[0][0], "candidate");
}

TEST(ResultsCsvText, SaysHowManyReplicasACandidateHas) {
  Results results = PlantedResults();
  results.candidates[1].configuration.replicas = 2;
  const auto rows = ParseCsv(ResultsCsv(results));
  const auto column = std::find(rows[0].begin(), rows[0].end(), "replicas") - rows[0].begin();
  ASSERT_LT(column, std::ssize(rows[0]));
  for (size_t i = 1; i < rows.size(); ++i)
    EXPECT_EQ(rows[i][static_cast<size_t>(column)], rows[i][0] == "1" ? "2" : "1");
}

TEST(ResultsCsvText, KeepsFormulasFromRunningInASpreadsheet) {
  Results results = PlantedResults();
  results.candidates[1].label = "=HYPERLINK(1)";
  const auto rows = ParseCsv(ResultsCsv(results));
  bool found = false;
  for (const auto& row : rows) {
    EXPECT_NE(row[1].substr(0, 1), "=");
    found |= row[1] == "'=HYPERLINK(1)";
  }
  EXPECT_TRUE(found);
}

TEST(ResultsJsonText, KeepsSamplesIntervalsAndReasons) {
  const Json json = ResultsJson(PlantedResults(), "out/x");
  const auto& candidates = json.Find("candidates")->array();
  ASSERT_EQ(candidates.size(), 6u);
  const Json& series = candidates[1].Find("series")->array()[0];
  EXPECT_EQ(series.Find("samples")->array().size(), 6u);
  EXPECT_TRUE(series.Find("estimate")->Find("interval")->is_object());
  EXPECT_THAT(candidates[4].Find("reason")->string(), HasSubstr("64 ranks"));
  const Json& verdict = json.Find("verdicts")->array()[0];
  EXPECT_EQ(verdict.Find("launch")->string(), "build/pinion launch out/x/profiles/throughput.json");
}

TEST(ReportMarkdownText, WithoutPicturesGivesTheReasonAndKeepsConclusions) {
  const std::string text = ReportMarkdown(PlantedResults(), "out/x",
                                          Fail(ErrorCode::kNotFound, "node is not installed"));
  EXPECT_THAT(text, HasSubstr("Pictures are left out: node is not installed."));
  EXPECT_THAT(text, HasSubstr("an efficiency of 71 %"));
  EXPECT_THAT(text, Not(HasSubstr(".svg")));
}

TEST_F(Outputs, PicturesAreDrawnIfNodeIsInstalled) {
  const PageParts parts = ReadPageParts(FindPageParts().value()).value();
  const auto pictures = RenderPictures(PlantedResults(), parts);
  if (!pictures) GTEST_SKIP() << pictures.error().message;
  for (const Chart& chart : ChartsOf(PlantedResults())) {
    ASSERT_TRUE(pictures->count(chart.name)) << chart.name;
    EXPECT_THAT(pictures->at(chart.name), HasSubstr("<path")) << chart.name;
    for (const char* unresolved : {"var(", "undefined", "NaN"})
      EXPECT_THAT(pictures->at(chart.name), Not(HasSubstr(unresolved))) << chart.name;
  }
}

TEST_F(Outputs, RingsAreDrawnAroundPointsThatMayBelongToTheParetoFront) {
  const PageParts parts = ReadPageParts(FindPageParts().value()).value();
  const auto rings = [&](const Results& results) {
    const auto pictures = RenderPictures(results, parts);
    if (!pictures) return -1;
    const std::regex ring("stroke-dasharray=\"2,2\"");
    const std::string& drawn = pictures->at("frontier");
    return static_cast<int>(
        std::distance(std::sregex_iterator(drawn.begin(), drawn.end(), ring), {}));
  };
  const int of_clear_results = rings(PlantedResults());
  if (of_clear_results < 0) GTEST_SKIP() << "node is not installed";
  EXPECT_EQ(of_clear_results, 0);
  EXPECT_EQ(rings(CloseResults()), 2);
}

TEST(ReportText, HasEveryFormatAndListsThemForAnUnknownOne) {
  const Results results = PlantedResults();
  EXPECT_THAT(ReportText(results, "out/x", "html").value(), HasSubstr("<!DOCTYPE html>"));
  EXPECT_THAT(ReportText(results, "out/x", "md").value(), HasSubstr("# preset:tiny"));
  EXPECT_TRUE(Json::Parse(ReportText(results, "out/x", "json").value()));
  EXPECT_THAT(ReportText(results, "out/x", "csv").value(), HasSubstr("candidate,"));
  EXPECT_THAT(ReportText(results, "out/x", "pdf").error().message,
              HasSubstr("html, md, json, csv"));
}

TEST(ReportMarkdownText, StatesVerdictCommandsAndReasons) {
  const std::string text = ReportMarkdown(
      PlantedResults(), "out/x/", std::map<std::string, std::string>{{"frontier", "<svg/>"}});
  EXPECT_THAT(text, HasSubstr("42.0 % \\[38.4, 45.5\\] more tokens per second"));
  EXPECT_THAT(text, HasSubstr("differences below 2.1 % cannot be resolved here"));
  EXPECT_THAT(text, HasSubstr("build/pinion launch out/x/profiles/throughput.json"));
  EXPECT_THAT(text, HasSubstr("VLLM_CPU_OMP_THREADS_BIND=0-1"));
  EXPECT_THAT(text, HasSubstr("ended by signal 9"));
  EXPECT_THAT(text, HasSubstr("64 ranks need 64 CPUs"));
  EXPECT_THAT(text, HasSubstr("![Throughput against latency](charts/frontier.svg)"));
  EXPECT_THAT(text, Not(HasSubstr("charts/paired.svg")));
  EXPECT_THAT(text, HasSubstr("E out of memory"));
  for (const auto facts : {WordFacts, MetricFacts, LoadFacts, TimeFacts, CounterFacts, HygieneFacts,
                           MachineFacts, EnvironmentFacts})
    EXPECT_THAT(text, HasSubstr(ToMarkdown(facts(PlantedResults()))));
}

TEST(LaunchGroups, ObjectivesThatAgreeShareACommand) {
  Results results = PlantedResults();
  const auto count = [](const std::string& text, const std::string& what) {
    size_t found = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
      ++found;
    return found;
  };
  auto groups = LaunchGroups(results, "out/x");
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].objectives(), "throughput and balanced");
  EXPECT_EQ(groups[1].objectives(), "latency");
  const std::string markdown =
      ReportMarkdown(results, "out/x", Fail(ErrorCode::kNotFound, "no node"));
  EXPECT_EQ(count(markdown, "pinion launch"), 2u);
  EXPECT_THAT(markdown, HasSubstr("For throughput and balanced:"));
  const std::string page = LaunchSection(results, "out/x").markup();
  EXPECT_EQ(count(page, "pinion launch out/x/"), 2u);
  EXPECT_THAT(page, HasSubstr(">throughput and balanced<"));
  for (Verdict& verdict : results.verdicts) verdict.recommended = 0;
  groups = LaunchGroups(results, "out/x");
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].objectives(), "throughput, latency and balanced");
  EXPECT_EQ(groups[0].commands.pinion, "build/pinion launch out/x/profiles/throughput.json");
}

TEST(Template, RefusesUnknownAndForgottenNames) {
  EXPECT_EQ(*FillTemplate("a{{x}}b", {{"x", "{{x}}"}}), "a{{x}}b");
  EXPECT_THAT(FillTemplate("{{y}}", {{"x", ""}}).error().message, HasSubstr("'y'"));
  EXPECT_THAT(FillTemplate("-", {{"x", ""}}).error().message, HasSubstr("'x'"));
  EXPECT_THAT(FillTemplate("{{x", {{"x", ""}}).error().message, HasSubstr("without closing"));
}

TEST(PlantedResults, HoldEveryStatus) {
  const Results results = PlantedResults();
  for (const CandidateStatus status :
       {CandidateStatus::kOk, CandidateStatus::kDropped, CandidateStatus::kFailed,
        CandidateStatus::kInfeasible, CandidateStatus::kPending}) {
    bool found = false;
    for (const Candidate& candidate : results.candidates) found |= candidate.status == status;
    EXPECT_TRUE(found) << Name(status);
  }
}

TEST(PageParts, MissingOnesAreNamed) {
  const auto parts = ReadPageParts("/nonexistent/reports");
  ASSERT_FALSE(parts);
  EXPECT_THAT(parts.error().message, HasSubstr("/nonexistent/reports/head.html"));
}

TEST_F(Outputs, WithoutChartLibrariesThePageHasTablesAndSaysSo) {
  PageParts parts = ReadPageParts(FindPageParts().value()).value();
  EXPECT_FALSE(parts.specs.empty());
  parts.libraries.clear();
  const std::string page = ReportPage(PlantedResults(), folder_, parts).value();
  EXPECT_THAT(page, HasSubstr("built without npm"));
  EXPECT_THAT(page, HasSubstr("class=\"candidates\""));
  EXPECT_THAT(page, Not(HasSubstr("vega-lite/v")));
}

TEST_F(Outputs, StayUnderTwoMegabytesWith500Configurations) {
  const PageParts parts = ReadPageParts(FindPageParts().value()).value();
  const Results results = ManyResults(500);
  EXPECT_LT(ReportPage(results, folder_, parts).value().size(), 2'000'000u);
}

TEST(CandidateTables, ShowAllOfThem) {
  const Results results = PlantedResults();
  const std::string both = (CandidateTable(results) + FailureTable(results)).markup();
  for (const Candidate& candidate : results.candidates)
    EXPECT_THAT(both, HasSubstr(SettingsText(candidate)));
  EXPECT_THAT(both, HasSubstr("out of memory"));
  EXPECT_THAT(both, HasSubstr("no trial has run yet"));
}

TEST(ParetoFront, IsToldByTheTablesAndTheJson) {
  const Results results = PlantedResults();
  const std::string told = "on the Pareto front with 1 client and with 8 clients";
  EXPECT_THAT(CandidateTable(results).markup(), HasSubstr(">" + told + "<"));
  EXPECT_THAT(ReportMarkdown(results, "out/x/", {}), HasSubstr("| " + told + " |"));
  const Json json = ResultsJson(results, "out/x/");
  const Json::Array& front = json.Find("front")->array();
  ASSERT_EQ(front.size(), 6u);
  EXPECT_EQ(front[2].Dump(),
            R"({"candidate":1,"label":"threads_bind=0-1 isa=avx2","concurrency":1,)"
            R"("front":"on","beaten_by":null})");
  EXPECT_EQ(front[5].Find("front")->string(), "off");
  EXPECT_EQ(front[5].Find("beaten_by")->Find("candidate")->integer(), 0);
}

TEST(CandidateTables, TagRecommendationsWithTheirObjectives) {
  Results results = PlantedResults();
  EXPECT_THAT(CandidateTable(results).markup(), HasSubstr(">for throughput<"));
  for (Verdict& verdict : results.verdicts) verdict.recommended = 1;
  EXPECT_THAT(CandidateTable(results).markup(), HasSubstr(">recommended<"));
  for (Verdict& verdict : results.verdicts) verdict.outcome = Outcome::kTooFewRounds;
  EXPECT_THAT(CandidateTable(results).markup(), Not(HasSubstr("class=\"tag\"")));
}

TEST(CandidateTables, CountDisturbancesAsReasonsNotAsSamples) {
  Results results = PlantedResults();
  results.candidates[1].suspect_reasons = {"round 3: steal 4.1 %"};
  EXPECT_THAT(CandidateTable(results).markup(), HasSubstr(">disturbed: round 3: steal 4.1 %<"));
  results.candidates[1].suspect_reasons = {"round 3: steal 4.1 %", "round 3: a late client"};
  EXPECT_THAT(CandidateTable(results).markup(), HasSubstr("steal 4.1 %, and 1 more<"));
}

TEST(CandidateTables, AnEmptySweepGetsASentenceInsteadOfATable) {
  Results results = PlantedResults();
  for (Candidate& candidate : results.candidates) candidate.series.clear();
  EXPECT_THAT(CandidateTable(results).markup(), HasSubstr("No configuration has been measured"));
}

}  // namespace
}  // namespace pinion::harness
