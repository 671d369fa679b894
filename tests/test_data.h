#pragma once

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace pinion::tests {

// The repository that this test binary was built in. Test binaries lie directly in a build folder,
// and build folders directly in the repository; a path in a compiler flag would instead make every
// clone compile every test again.
inline std::filesystem::path SourceFolder() {
  return std::filesystem::canonical("/proc/self/exe").parent_path().parent_path();
}

// The folder of checkpoints, recorded noise and reference outputs; PINION_TEST_DATA names another
// one.
inline std::string TestData() {
  const char* named = std::getenv("PINION_TEST_DATA");
  return named ? named : (SourceFolder() / "tests/data").string();
}

// The checkpoints with goldens in tests/data/models: one an architecture, or more if it has
// variants.
inline std::vector<std::string> ModelFixtures() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TestData() + "/models"))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// The encoders with goldens in tests/data/embedders: embedders and rerankers that read a text
// whole.
inline std::vector<std::string> EncoderFixtures() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TestData() + "/embedders"))
    if (const std::string name = entry.path().filename(); name.rfind("qwen3", 0) != 0)
      names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

// A fixture's name as GoogleTest allows it in a test's.
inline std::string TestName(std::string name) {
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

}  // namespace pinion::tests
