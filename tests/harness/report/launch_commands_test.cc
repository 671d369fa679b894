// A report's commands that start other engines.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/report/export.h"
#include "harness/report/markdown.h"
#include "harness/report/page.h"
#include "harness/report/recommend.h"
#include "planted.h"

namespace pinion::harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// The winner has settings of which vLLM lacks one, and llama.cpp two.
Results WithForeignSettings() {
  Results results = PlantedResults();
  EngineOptions& options = results.candidates[1].configuration.options;
  options.head_dtype = "int8";
  options.block_size = 32;
  return results;
}

TEST(LaunchCommands, SettingsThatAnotherEngineLacksAreNamedInEveryFormat) {
  const Results results = WithForeignSettings();
  const Verdict& throughput = results.verdicts[0];
  const LaunchCommands commands = LaunchCommandsOf(results, throughput, "out/x");
  EXPECT_THAT(commands.vllm, HasSubstr("--block-size 32"));
  EXPECT_THAT(commands.vllm_lacks, ElementsAre("head_dtype=int8"));
  EXPECT_THAT(commands.llama_cpp_lacks, ElementsAre("head_dtype=int8", "block_size=32"));

  const std::string page = LaunchSection(results, "out/x").markup();
  EXPECT_THAT(page, HasSubstr("vLLM has no setting for head_dtype=int8."));
  EXPECT_THAT(page, HasSubstr("It has no setting for head_dtype=int8, block_size=32."));
  const std::string text =
      ReportMarkdown(results, "out/x", Fail(ErrorCode::kNotFound, "node is not installed"));
  EXPECT_THAT(text, HasSubstr("vLLM has no setting for head\\_dtype=int8."));
  EXPECT_THAT(text, HasSubstr("llama.cpp has no setting for head\\_dtype=int8, block\\_size=32."));
  const Json json = ResultsJson(results, "out/x");
  const Json& verdict = json.Find("verdicts")->array()[0];
  EXPECT_EQ(verdict.Find("launch_vllm_lacks")->Dump(), R"(["head_dtype=int8"])");
  EXPECT_EQ(verdict.Find("launch_llama_cpp_lacks")->Dump(),
            R"(["head_dtype=int8","block_size=32"])");
}

TEST(LaunchCommands, NothingIsSaidOfEnginesThatHaveAllSettings) {
  const std::string text =
      ReportMarkdown(PlantedResults(), "out/x", Fail(ErrorCode::kNotFound, "no node"));
  EXPECT_THAT(text, Not(HasSubstr("has no setting")));
  EXPECT_THAT(LaunchSection(PlantedResults(), "out/x").markup(), Not(HasSubstr("has no setting")));
}

}  // namespace
}  // namespace pinion::harness
