#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pinion::harness {

// The operating system's counters so far, of the measured processes and of the machine. Counters
// that this machine does not have stay 0 and never report a disturbance.
struct Conditions {
  int64_t now_ns = 0;
  uint64_t cpu_ticks = 0, steal_ticks = 0;  // /proc/stat, all CPUs
  uint64_t busy_ticks = 0;                  // of those: neither idle nor stolen
  uint64_t own_ticks = 0;                   // of those: of this process and its descendants
  bool knows_own = true;           // false: own_ticks lacks a part of the measured processes
  uint64_t pressure_us = 0;        // /proc/pressure/cpu, some, total
  uint64_t throttled_periods = 0;  // cpu.stat of this process's cgroup
  // Of the measured processes' threads.
  std::vector<int> threads;
  uint64_t major_faults = 0, involuntary_switches = 0;
  std::map<int, int> pinned;  // those that may run on only one CPU, and that CPU

  // Processes that have ended count as if they had no threads. The descendants of `own` count as
  // this process's.
  static Conditions Of(const std::vector<pid_t>& processes, const std::vector<pid_t>& own = {});
};

// Shares of the time between the two, 0 to 1; 0 if the counter is absent.
double StealShare(const Conditions& before, const Conditions& after);     // of all CPUs' time
double PressureShare(const Conditions& before, const Conditions& after);  // some task waited
double OthersShare(const Conditions& before, const Conditions& after);    // of all CPUs' time

// Threads that were pinned and are now bound to another CPU, or to several. Threads that have ended
// do not count: `alive` are the current threads.
size_t MovedThreads(const std::map<int, int>& before, const std::map<int, int>& after,
                    const std::vector<int>& alive);

// Disturbances between the two, which may have changed the measurement, one phrase each ("steal 4.1
// %"); empty if none was detected. Effects of the measured processes on each other belong to their
// result: pressure, switches, throttling and page faults count only if other processes computed
// meanwhile. `threads`: that compute.
std::vector<std::string> Disturbances(const Conditions& before, const Conditions& after,
                                      int threads);

}  // namespace pinion::harness
