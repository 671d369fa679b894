#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/memory_file.h"
#include "engine/base/process.h"
#include "engine/base/result.h"

namespace pinion {

// The engine process's standard error: passed on, and its tail kept to explain the process's end.
class LogTail {
 public:
  explicit LogTail(int fd);  // owned
  ~LogTail();
  LogTail(const LogTail&) = delete;
  LogTail& operator=(const LogTail&) = delete;
  int fd() const { return fd_; }

  // Passes on all bytes that have arrived. False at the end of the file.
  bool Read();
  std::string LastLine() const;

 private:
  static constexpr size_t kKeptBytes = 4096;
  int fd_;
  std::string tail_;
};

// Descriptors of the engine process: its end of the link; where it counts its progress; the weights
// that it shares with others, if it does.
inline constexpr int kEngineLinkFd = 3, kEngineProgressFd = 4, kEngineWeightsFd = 5;

// The engine process, its log and its progress.
struct EngineProcess {
  // `link_fd` becomes the child's kEngineLinkFd and is closed here; `weights_fd` its
  // kEngineWeightsFd, unless it is -1. The child runs on `cpus`; none: on the caller's.
  static Result<EngineProcess> Start(
      const std::vector<std::string>& command, const std::vector<int>& cpus,
      const std::vector<std::pair<std::string, std::string>>& environment, int link_fd,
      int weights_fd = -1);

  Process process;
  std::unique_ptr<LogTail> log;
  MemoryFile progress;
};

// "the engine process was ended by signal 9 (Killed); its last line was: ..."
std::string Describe(const Process::Exit& exit, const std::string& last_line);

}  // namespace pinion
