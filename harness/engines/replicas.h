#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/engines/command.h"
#include "harness/engines/server.h"

namespace pinion::harness {

// One command per replica, each on its port, with its part of the plan (PlanReplicas in engine/run)
// and of the load. Several replicas, and Pinion's own server, get explicit CPUs and start on
// those of their ranks and front ends. Otherwise like CommandFor.
Result<std::vector<EngineCommand>> CommandsFor(const EngineChoice& engine,
                                               const EngineOptions& options, const Plan& whole,
                                               const Machine& machine,
                                               const std::vector<int>& ports,
                                               const ServedLoad& load = {});

// The servers of one configuration: ready when all are, lost when one is. Ended together.
class Replicas {
 public:
  Replicas() = default;
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;
  ~Replicas();

  // Starts all of them, then waits for all. The output of one alone goes to standard error; of
  // several each has a file, `log` with "-replica1.log" behind it. Errors as EngineServer's, with
  // the server's name.
  Status Start(const EngineChoice& engine, const std::vector<EngineCommand>& commands,
               const std::vector<int>& ports, const std::string& log,
               const std::function<bool()>& interrupted);

  std::vector<ServerUrl> urls() const;
  double start_s() const;  // until the last was ready
  std::vector<pid_t> processes() const;
  uint64_t peak_rss_bytes() const;  // the sum
  // "the server ended with exit code 3", "replica 2 of 2 was ended by signal 9 (Killed)"; empty
  // while all run.
  std::string WhyEnded();
  // The log files of the servers that have ended.
  std::vector<std::string> LogsOfEnded();

 private:
  std::string NameOf(size_t index) const;

  std::vector<std::unique_ptr<EngineServer>> servers_;
  std::vector<std::string> logs_;  // empty: standard error
  size_t count_ = 0;
};

}  // namespace pinion::harness
