// Every function of fuzz.h over its kept corpus, with whatever compiler and sanitizers build the
// tests: what fuzzing has found stays found without Clang.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/test_data.h"

namespace pinion::fuzz {
namespace {

struct Target {
  const char* name;
  void (*run)(std::string_view);
};
constexpr Target kTargets[] = {
    {"request", Request},
    {"chat", Chat},
    {"tokenizer", Tokenizer},
    {"safetensors", Safetensors},
    {"gguf", Gguf},
    {"http", Http},
    {"load", Load},
    {"sweep", Sweep},
    {"profile", Profile},
    {"output", Output},
    {"gguf_model", GgufModel},
};

std::filesystem::path Corpus() { return tests::SourceFolder() / "tests/fuzz/corpus"; }

std::vector<std::filesystem::path> Sorted(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

struct Input {
  Target target;
  std::filesystem::path path;
};

void PrintTo(const Input& input, std::ostream* out) { *out << input.path.filename(); }

std::vector<Input> Inputs() {
  std::vector<Input> inputs;
  for (const Target& target : kTargets)
    for (auto& path : Sorted(Corpus() / target.name)) inputs.push_back({target, std::move(path)});
  return inputs;
}

class CorpusTest : public testing::TestWithParam<Input> {};

// A broken promise ends the process: the last test that was begun is the one.
TEST_P(CorpusTest, KeepsItsPromises) {
  const auto text = ReadFile(GetParam().path.string());
  ASSERT_TRUE(text) << text.error().message;
  // A copy of exactly its size, so that AddressSanitizer sees a read beyond it.
  const std::vector<char> exact(text->begin(), text->end());
  GetParam().target.run({exact.data(), exact.size()});
}

INSTANTIATE_TEST_SUITE_P(Fuzz, CorpusTest, testing::ValuesIn(Inputs()), [](const auto& input) {
  return input.param.target.name + ("_" + input.param.path.stem().string());
});

TEST(Corpus, HasAFolderForEachTargetAndNoOther) {
  std::vector<std::string> wanted, found;
  for (const Target& target : kTargets) wanted.emplace_back(target.name);
  std::sort(wanted.begin(), wanted.end());
  for (const auto& path : Sorted(Corpus())) found.push_back(path.filename().string());
  EXPECT_EQ(found, wanted);
}

TEST(Corpus, StaysSmall) {
  constexpr size_t kMostBytes = 200'000;
  size_t bytes = 0;
  for (const Input& input : Inputs()) bytes += std::filesystem::file_size(input.path);
  EXPECT_GT(bytes, 0u);
  EXPECT_LE(bytes, kMostBytes);
}

}  // namespace
}  // namespace pinion::fuzz
