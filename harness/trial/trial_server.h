#pragma once

#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/host/binding.h"
#include "engine/host/budget.h"
#include "engine/host/machine.h"
#include "harness/engines/command.h"
#include "harness/engines/server.h"
#include "harness/trial/generator_process.h"
#include "harness/trial/measurement.h"
#include "harness/trial/trial_deadline.h"

namespace pinion::harness {

// How a trial's server is started on this machine, and the CPUs that its load gets.
struct ServerPlan {
  Machine machine;
  Configuration configuration;
  pinion::Plan whole;  // of all engines behind the server
  ServedLoad load;
  std::optional<std::vector<int>> generator_cpus;  // unset: it shares the server's

  Result<EngineCommand> CommandOn(int port, const EngineChoice& engine) const;
};

Result<ServerPlan> PlanServer(const TrialRequest& request);

// As a user would type it, on the usual port.
Result<std::string> ShownCommand(const ServerPlan& plan, const TrialRequest& request);

// The CPUs of `budget` that neither ranks nor front ends use; unset if there are none, or if the
// ranks may run anywhere.
std::optional<std::vector<int>> SpareCpus(const Budget& budget, const pinion::Plan& plan);

// A configuration's server, running, with the generator of its load.
class TrialServer final : public LoadTarget {
 public:
  // Returns when the server is ready; it writes to `log_fd`. `start_ns`: of the trial's
  // process. Errors: it ended (with the last error in the trial's log), took longer than its
  // choice's start_timeout_s, or answers no request (kFailed); one of Pinion's that was not ready,
  // or gave no answer, by its share of the trial's deadline (kTimeout).
  static Result<std::unique_ptr<TrialServer>> Start(const TrialRequest& request,
                                                    const ServerPlan& plan, int64_t start_ns,
                                                    std::function<bool()> interrupted,
                                                    int log_fd = STDERR_FILENO);

  Result<PhaseResult> Send(const LoadPlan& phase) override;
  std::vector<pid_t> processes() const override { return server_->processes(); }
  int replicas() const override { return request_.configuration.replicas; }
  int threads() const override { return plan_.whole.total_threads(); }
  void Settle(double limit_s) override;

  // Samples and info of the configuration itself; asks Pinion's server for its own.
  void Describe(TrialResult& result) const;

 private:
  TrialServer(const TrialRequest& request, const ServerPlan& plan, int64_t start_ns,
              std::function<bool()> interrupted)
      : request_(request),
        plan_(plan),
        deadline_{start_ns, request.deadline_s},
        interrupted_(std::move(interrupted)) {}

  Status StartAndWait(int log_fd);
  Status WaitUntilReady();
  Status Ask();
  Status MeasureScale();
  std::string WhyStop(double patience_s);
  std::string WhyEnded(const char* when, double patience_s);
  void TakeServerInfo(TrialResult& result) const;

  const TrialRequest& request_;
  const ServerPlan& plan_;
  const TrialDeadline deadline_;
  const std::function<bool()> interrupted_;
  std::unique_ptr<EngineServer> server_;
  LoadedServer loaded_;  // the same as its clients know it
  std::unique_ptr<GeneratorProcess> generator_;
  std::vector<std::string> ignored_;  // settings without a counterpart in this engine
};

}  // namespace pinion::harness
