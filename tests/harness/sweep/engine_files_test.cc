#include "harness/sweep/engine_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace pinion::harness {
namespace {

class EngineFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("pinion_engine_files_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    path_ = std::getenv("PATH");
    setenv("PATH", (folder_.string() + ":" + path_).c_str(), 1);
  }
  void TearDown() override {
    setenv("PATH", path_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }

  void Write(const char* name, const char* text) const {
    std::ofstream(folder_ / name) << text;
    std::filesystem::permissions(folder_ / name, std::filesystem::perms::owner_all);
  }
  static std::string HashesOf(const EngineChoice& engine) {
    Definition definition;
    definition.engines = {engine};
    return EngineFiles(definition).Dump();
  }

  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(EngineFilesTest, AnotherProgramIsNoticed) {
  using Kind = EngineChoice::Kind;
  for (const auto& [kind, name] :
       {std::pair(Kind::kVllm, "vllm"), std::pair(Kind::kLlamaCpp, "llama-server"),
        std::pair(Kind::kCommand, "mine")}) {
    EngineChoice engine;
    engine.kind = kind;
    if (kind == Kind::kCommand) engine.command = {name, "--port", "{port}"};
    Write(name, "one");
    const std::string before = HashesOf(engine);
    EXPECT_EQ(HashesOf(engine), before) << name;
    Write(name, "two");
    EXPECT_NE(HashesOf(engine), before) << name;
  }
}

TEST_F(EngineFilesTest, AScriptThatAnInterpreterRunsCountsToo) {
  EngineChoice engine;
  engine.kind = EngineChoice::Kind::kCommand;
  engine.command = {"sh", (folder_ / "serve.sh").string(), "--port", "{port}"};
  Write("serve.sh", "one");
  const std::string before = HashesOf(engine);
  Write("serve.sh", "two");
  EXPECT_NE(HashesOf(engine), before);
}

TEST_F(EngineFilesTest, PinionItselfHasNoFileOfItsOwn) {
  EXPECT_EQ(HashesOf({}), R"({"pinion":{}})");
}

}  // namespace
}  // namespace pinion::harness
