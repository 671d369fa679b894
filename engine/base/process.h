#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/result.h"

namespace pinion {

// A child process, started by vfork and exec. The kernel kills it when the thread that started it
// ends, so start children from a thread that outlives them.
class Process {
 public:
  struct Options {
    std::vector<std::string> arguments;  // [0] is the program, found through PATH if it has no '/'
    std::vector<std::pair<std::string, std::string>> environment;  // added to the parent's
    std::optional<std::vector<int>> cpus;  // affinity of the child; unset: the parent's
    int stdin_fd = -1, stdout_fd = -1, stderr_fd = -1;  // -1: /dev/null for stdin, inherit others
    std::vector<std::pair<int, int>> pass_fds;  // {parent's descriptor, number in the child >= 3}
    bool own_group = true;  // a process group of its own, so that Kill reaches its children too
  };
  struct Exit {
    int code = 0;    // exit status, if it exited
    int signal = 0;  // number of the signal that ended it, or 0
  };

  static Result<Process> Start(const Options& options);
  Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, -1)), group_(other.group_) {}
  Process& operator=(Process&& other) noexcept;
  ~Process();  // kills (SIGKILL) and reaps the child if it still runs

  pid_t pid() const { return pid_; }
  bool running() const { return pid_ > 0; }
  // Waits up to `seconds` (0: does not wait); nullopt if the child still runs.
  std::optional<Exit> Wait(double seconds);
  // The same, and kills what the child has left behind in its group. That is done while the child's
  // number, which is its group's, is still its own: once it has been waited for, a group of
  // strangers may have it.
  std::optional<Exit> WaitAndEndGroup(double seconds);
  void Signal(int number);
  // SIGTERM, then SIGKILL after `grace_seconds`; returns how the child ended.
  Exit Stop(double grace_seconds);

 private:
  Process(pid_t pid, bool group) : pid_(pid), group_(group) {}
  std::optional<Exit> WaitFor(double seconds, bool end_group);
  pid_t pid_ = -1;
  bool group_ = true;
};

// Peak resident memory of a process so far (VmHWM); 0 if it has ended.
uint64_t PeakRssBytes(pid_t pid);

// Path of the running executable.
std::string SelfPath();

}  // namespace pinion
