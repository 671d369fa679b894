#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/process.h"
#include "harness/counters/counters.h"

namespace pinion::harness {

// The path of a program in a folder of PATH or in /usr/sbin, all below `root`; "" if there is none.
std::string FindTool(const std::string& root, const std::string& name);

// A tool that runs beside a measurement, with its output in files that have no name.
class Tool {
 public:
  // Fails if it cannot be started, or a file cannot be made.
  std::optional<CounterGap> Start(const std::vector<std::string>& arguments);
  // Waits for its end; `signal` (0: none) is sent first. After `patience_s` it is killed. Returns
  // what it has written.
  std::string Finish(int signal, double patience_s);
  // Why nothing could be read from its output: that it was killed; if it failed, its own error; or
  // else `otherwise`.
  std::string WhyNothing(const std::string& otherwise) const;

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;
  static std::string Read(std::FILE* file);

  std::string name_;
  File output_, errors_;
  std::optional<Process> child_;
  std::string error_;
  bool killed_ = false, failed_ = false;
};

}  // namespace pinion::harness
