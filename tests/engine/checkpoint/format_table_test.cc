// The lists of formats that are read: each is documented, and a fixture has it.

#include "engine/checkpoint/format_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/config_json.h"
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
  // Nobody publishes a reference for it: that test writes checkpoints and their logits.
  const std::string written = ReadFile(tests::SourceFolder() / "tests/e2e/test_nvfp4.py").value();
  if (written.find(R"("quant_method": "modelopt")") != std::string::npos) tested.insert("modelopt");
  for (const PublishedFormat& format : PublishedFormats())
    EXPECT_TRUE(tested.contains(std::string(format.quant_method))) << format.quant_method;
  EXPECT_EQ(tested.size(), PublishedFormats().size()) << "a fixture of no method in the table";
}

}  // namespace
}  // namespace pinion
