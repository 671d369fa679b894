#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/memory_file.h"
#include "engine/base/process.h"
#include "harness/counters/counters.h"

namespace pinion::harness {

// The path of a program in a folder of PATH or in /usr/sbin, all below `root`; "" if there is none.
std::string FindTool(const std::string& root, const std::string& name);

// A tool that runs beside a measurement, with its output in files in memory.
class Tool {
 public:
  // Fails if it cannot be started, or a file cannot be made.
  std::optional<CounterGap> Start(const std::vector<std::string>& arguments);
  // Waits for its end; `signal` (0: none) is sent first. After `patience_s` it is killed. Returns
  // its output.
  std::string Finish(int signal, double patience_s);
  // Why nothing could be read from its output: that it was killed; if it failed, its own error; or
  // else `otherwise`.
  std::string WhyNothing(const std::string& otherwise) const;

 private:
  std::string name_;
  std::optional<MemoryFile> output_, errors_;
  std::optional<Process> child_;
  std::string error_;
  bool killed_ = false, failed_ = false;
};

}  // namespace pinion::harness
