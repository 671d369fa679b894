// The lists of formats that are read: each is documented, and a fixture has it.

#include "engine/checkpoint/format_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/config_json.h"
#include "engine/checkpoint/scheme.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

TEST(FormatTable, IsInTheDocumentation) {
  const std::string page = ReadFile(tests::SourceFolder() / "docs/models.md").value();
  EXPECT_THAT(page, HasSubstr(FormatTable())) << "run scripts/registries";
  EXPECT_THAT(page, HasSubstr(GgufTable())) << "run scripts/registries";
}

TEST(FormatTable, HasAFixtureForEachMethod) {
  std::set<std::string> tested;
  for (const auto& entry : std::filesystem::directory_iterator(tests::TestData() + "/quantised")) {
    if (!entry.is_directory()) continue;
    const Json config = ParseConfigFile(entry.path().string() + "/config.json").value();
    const Json* scheme = config.Find("quantization_config");
    tested.insert(Optional<std::string>(*scheme, "quant_method", "").value());
  }
  // Nobody publishes a reference for it: tests/e2e/test_nvfp4.py writes checkpoints and their
  // logits.
  const auto model_opt = ReadScheme(
      Json::Parse(R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}})")
          .value());
  ASSERT_TRUE(model_opt && *model_opt);
  EXPECT_EQ((*model_opt)->method, QuantMethod::kNvfp4);
  tested.insert("modelopt");
  for (const PublishedFormat& format : PublishedFormats())
    EXPECT_TRUE(tested.contains(std::string(format.quant_method))) << format.quant_method;
  EXPECT_EQ(tested.size(), PublishedFormats().size()) << "a fixture of no method in the table";
}

}  // namespace
}  // namespace pinion
