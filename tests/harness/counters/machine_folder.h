#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/counters/counters.h"

namespace pinion::harness {

// A machine that is a folder: /sys, /proc and /dev as some machine has them, and tools in /usr/sbin
// that print given texts. Perf's counters are this machine's.
class MachineFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / StrCat("pinion_counters_", getpid());
    std::filesystem::create_directories(root_);
    target_.root = root_.string() + "/";
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    ASSERT_TRUE(WriteFile(root_ / path, text));
  }
  void PutTool(const std::string& name, const std::string& script) {
    Put("usr/sbin/" + name, "#!/bin/sh\n" + script);
    chmod((root_ / "usr/sbin" / name).c_str(), 0755);
  }
  // A tool that prints a text once it is interrupted, as Intel's do with what they have buffered.
  void PutToolThatPrintsAtItsEnd(const std::string& name, const std::string& text) {
    Put("printed", text);
    PutTool(name, StrCat("trap 'cat ", target_.root, "printed; exit 0' INT\ntouch ", target_.root,
                         "ready\nwhile :; do sleep 0.01; done\n"));
  }
  void PutIntel() {
    Put("proc/cpuinfo", "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 79\n");
    Put("dev/cpu/0/msr", "");
  }
  void WaitForTool() const {
    while (!std::filesystem::exists(root_ / "ready")) usleep(1000);
  }

  std::filesystem::path root_;
  CounterTarget target_;
};

// The value of that name, or NaN.
inline double ValueIn(const std::vector<CounterValue>& values, const std::string& name) {
  for (const CounterValue& value : values)
    if (value.name == name) return value.value;
  return std::nan("");
}

}  // namespace pinion::harness
