// The architectures that Pinion runs, and those of GGUF files: none of either is forgotten.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include "engine/checkpoint/gguf_architectures.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

using ::testing::Contains;
using ::testing::UnorderedElementsAre;

std::set<std::string_view> NamesOfFiles() {
  std::set<std::string_view> names;
  for (const GgufArchitecture& each : GgufArchitectures()) names.insert(each.hugging_face);
  return names;
}

std::set<std::string_view> NamesOfModels() {
  std::set<std::string_view> names;
  for (const Architecture* each : Architectures()) names.insert(each->name);
  return names;
}

TEST(GgufCoverage, OnlyTheseArchitecturesHaveNoNameInFiles) {
  std::set<std::string_view> without;
  std::ranges::set_difference(NamesOfModels(), NamesOfFiles(),
                              std::inserter(without, without.end()));
  EXPECT_THAT(without, UnorderedElementsAre(
                           "OPTForCausalLM",  // llama.cpp does not run it
                           "Qwen3Model",      // 'qwen3' with a pooling_type, which drops the head
                           // 'bert' without the rows of positions before the first token's
                           "XLMRobertaForSequenceClassification", "XLMRobertaModel"));
}

TEST(GgufCoverage, FilesHaveOnlyArchitecturesThatPinionRuns) {
  const std::set<std::string_view> models = NamesOfModels();
  for (const std::string_view name : NamesOfFiles()) EXPECT_THAT(models, Contains(name));
}

}  // namespace
}  // namespace pinion
