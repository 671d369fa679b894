#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

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

}  // namespace pinion::tests
