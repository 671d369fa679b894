#pragma once

#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/descriptor.h"
#include "engine/base/result.h"
#include "harness/trial/trial.h"

namespace pinion::harness {

// How to run one trial in a process of its own.
struct TrialProcess {
  std::string binary;     // pinion itself: its hidden `trial` command reads the request
  std::string log_path;   // output of the child; written anew
  double timeout_s = 60;  // then it hangs, and is killed
  std::vector<std::pair<std::string, std::string>> environment = {};  // added to ours
  std::function<bool()> interrupted = [] { return false; };  // asked several times a second
  const Clock* clock = &kMachineClock;  // of the timeout and of the seconds that it took
};

// The outcome of a trial. It is always a value: a crash, a hang and a lack of memory of the child
// are reasons, not errors.
struct TrialOutcome {
  bool ok = false;
  bool interrupted = false;  // the child was killed because `interrupted` said so; no result
  TrialResult result;        // if ok; of a failure for lack of time, only the cuts
  std::string reason;        // of a failure: one phrase
  bool out_of_time = false;  // of a failure: its load did not get far enough within its limit
  std::string log_tail;      // of a failure: the last lines of its log
  double seconds = 0;
};

// Starts the child (it dies with the calling thread's process), waits, and reads its result. Errors
// are ours: the log cannot be written, no process can be started.
Result<TrialOutcome> RunTrialProcess(const TrialRequest& request, const TrialProcess& process);

// The same for a pair, each side's time half of the whole. The end of the child is the outcome of
// both; the log of a side is its request's.
Result<std::array<TrialOutcome, 2>> RunPairProcess(const PairRequest& request,
                                                   const TrialProcess& process);

// A trial's log, written anew. Errors (kIo): it cannot be opened.
Result<Descriptor> OpenLog(const std::string& path);

// The last `lines` lines of a file, for a report, or its last 16 KiB if they are longer; empty if
// the file is missing.
std::string LogTail(const std::string& path, size_t lines = 20);

}  // namespace pinion::harness
