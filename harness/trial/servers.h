#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/host/binding.h"
#include "engine/host/budget.h"
#include "engine/host/machine.h"
#include "harness/engines/replicas.h"
#include "harness/trial/generator_process.h"
#include "harness/trial/measurement.h"

namespace pinion::harness {

// How a trial's servers are started on this machine, and the CPUs that their load gets.
struct ServerPlan {
  Machine machine;
  EngineOptions options;  // of each server
  pinion::Plan whole;     // of all of them
  ServedLoad load;
  std::optional<std::vector<int>> generator_cpus;  // unset: it shares the servers'

  Result<std::vector<EngineCommand>> Commands(const EngineChoice& engine,
                                              const std::vector<int>& ports) const;
};

Result<ServerPlan> PlanServers(const TrialRequest& request);

// One line per server, as a user would type it, on the ports that follow the proxy's.
Result<std::string> ShownCommand(const ServerPlan& plan, const TrialRequest& request);

// The CPUs of `budget` that neither ranks nor front ends use; unset if there are none, or if the
// ranks may run anywhere.
std::optional<std::vector<int>> SpareCpus(const Budget& budget, const pinion::Plan& plan);

// A configuration's servers, running, with the generator of their load.
class TrialServers final : public LoadTarget {
 public:
  // Returns when all servers are ready. Errors: one ended (with the last error in its log), took
  // longer than its choice's start_timeout_s, or answers no request.
  static Result<std::unique_ptr<TrialServers>> Start(const TrialRequest& request,
                                                     const ServerPlan& plan,
                                                     std::function<bool()> interrupted);

  ~TrialServers() override;  // stops them; the end of the log of one that has ended goes to stderr

  Result<PhaseResult> Send(const LoadPhase& phase) override;
  std::vector<pid_t> processes() const override { return servers_.processes(); }
  int servers() const override { return request_.replicas; }
  int threads() const override { return plan_.whole.total_threads(); }

  // Samples and info of the configuration itself; asks Pinion's servers for theirs.
  void Describe(TrialResult& result) const;

 private:
  TrialServers(const TrialRequest& request, const ServerPlan& plan,
               std::function<bool()> interrupted)
      : request_(request), plan_(plan), interrupted_(std::move(interrupted)) {}

  Status StartAll();
  Status Ask();
  ServerLoadPlan PlanOf(const LoadPhase& phase) const;
  std::string WhyStop();
  std::string WhyEnded(const char* when);
  void TakeServerInfo(TrialResult& result) const;

  const TrialRequest& request_;
  const ServerPlan& plan_;
  const std::function<bool()> interrupted_;
  Replicas servers_;
  std::unique_ptr<GeneratorProcess> generator_;
  std::vector<ServerUrl> urls_;
  std::vector<std::string> ignored_;  // settings without a counterpart in this engine
  RequestStyle style_;
  TokenScale scale_;
  int longest_ = 0;  // most tokens of a prompt and its answer; 0: unknown
};

}  // namespace pinion::harness
