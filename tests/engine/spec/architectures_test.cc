// The registry of architectures: how a config names one, and what each must have.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/spec/architecture.h"
#include "tests/engine/spec/configs.h"

namespace pinion {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Architectures, FallsBackToTheModelType) {
  EXPECT_EQ(ReadSpec(With("opt", "architectures", "[]"))->architecture, "OPTForCausalLM");
  Json config = With("opt", "architectures", "null");
  config.Set("model_type", "gpt2");
  EXPECT_THAT(ErrorOf(config),
              AllOf(HasSubstr("model type 'gpt2'"), HasSubstr("`pinion model list`")));
  config.Set("model_type", nullptr);
  EXPECT_THAT(ErrorOf(config), HasSubstr("'model_type'"));
  EXPECT_THAT(ErrorOf(Json::MakeArray()), HasSubstr("want an object"));
}

TEST(Architectures, HaveAFixtureEach) {
  std::set<std::string> tested;
  for (const std::string& model : tests::ModelFixtures()) tested.insert(SpecOf(model).architecture);
  std::vector<std::string> embedders = tests::EncoderFixtures();
  embedders.emplace_back("qwen3-embedding");  // no encoder: its attention is causal
  for (const std::string& model : embedders)
    tested.insert(
        ReadSpec(Json::ParseFile(StrCat(tests::TestData(), "/embedders/", model, "/config.json"))
                     .value())
            .value()
            .architecture);
  for (const Architecture* architecture : Architectures()) {
    EXPECT_TRUE(tested.contains(std::string(architecture->name))) << architecture->name;
    EXPECT_FALSE(architecture->models.empty()) << architecture->name;
  }
}

// Published checkpoints of these hold the language model beside other parts, under another name.
TEST(Architectures, AreFoundInTheirWrappers) {
  size_t wrapped = 0;
  for (const std::string& model : tests::ModelFixtures()) {
    Json config = Config(model);
    if (const Json* text = config.Find("text_config")) config = Json(*text);
    const std::string name = SpecOf(model).architecture;
    for (const Architecture* architecture : Architectures()) {
      if (architecture->name != name || architecture->wrapper.empty()) continue;
      ++wrapped;
      config.Set("architectures", nullptr);
      config.Set("model_type", std::string(architecture->model_type));
      const Json whole =
          Json::Object{{"architectures", Json::Array{std::string(architecture->wrapper)}},
                       {"text_config", config}};
      const auto spec = ReadSpec(whole);
      ASSERT_TRUE(spec) << spec.error().message;
      EXPECT_EQ(spec->architecture, name);
      EXPECT_EQ(spec->wrapper, architecture->wrapper);
      EXPECT_THAT(ArchitectureTable(), HasSubstr(StrCat("`", name, "`, `", spec->wrapper, "`")));
    }
  }
  EXPECT_GE(wrapped, 8u);
}

TEST(Architectures, AreInTheDocumentation) {
  EXPECT_THAT(ReadFile(tests::SourceFolder() / "docs/models.md").value(),
              HasSubstr(ArchitectureTable()))
      << "run scripts/registries";
}

}  // namespace
}  // namespace pinion
