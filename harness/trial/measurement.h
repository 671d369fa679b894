#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/result.h"
#include "harness/engines/server_counters.h"
#include "harness/load/generator.h"
#include "harness/load/slo_search.h"
#include "harness/trial/trial.h"

namespace pinion::harness {

// A phase as its clients saw it, and the counts of the server meanwhile, if it counts.
struct PhaseResult {
  ServerLoadResult load;
  std::optional<ServerCounters> counted;
  std::optional<double> kv_used_share;  // the highest seen; unset: it was never read
};

inline constexpr char kWarmUpShape[] = "warm-up";  // the shape's name in the plan of a warm-up

// The server of a trial, and the generator that loads it.
class LoadTarget {
 public:
  virtual ~LoadTarget() = default;
  // Errors end the trial: the server or the generator has ended, or the trial is interrupted.
  virtual Result<PhaseResult> Send(const LoadPlan& phase) = 0;
  virtual std::vector<pid_t> processes() const = 0;  // of the server
  virtual int replicas() const = 0;                  // engines behind it
  virtual int threads() const = 0;                   // that compute
  // Waits until the server, which has no request, computes nothing: one that has just started
  // makes the memory of its cache ready meanwhile, for seconds. At most `limit_s`.
  virtual void Settle(double limit_s) = 0;
};

// A trial's course, the same for every engine: warm-up, the offline batch if the workload has one
// and a loop at each of its levels (after a warm-up of its own) in an order drawn from the seed,
// the search for the SLO's load; counters and disturbances around all but the warm-up.
class Measurement {
 public:
  // The limit counts from `start_ns`, but the load always gets at least half of it, and at least
  // as long as the start took, up to its share of the request's deadline.
  Measurement(LoadTarget& target, const TrialRequest& request, int64_t start_ns,
              const Clock& clock = kMachineClock);

  // Errors are the target's.
  Result<TrialResult> Run();
  // The warm-up alone, and the same as Run of a target that has had it. With `counts` the hardware
  // counters are read.
  Status WarmUpAlone();
  Result<TrialResult> RunWarm(bool counts);

 private:
  LoadPlan Phase(uint64_t stream) const;
  LoadPlan Part(uint64_t stream, size_t weight, size_t weights_left) const;
  Result<TrialResult> Finish(Status measured);
  Status Measure(bool counts);
  Status WarmUpFor(int clients, double share);
  Result<bool> WarmUp(LoadPlan phase);  // false: it was cut off
  Status RunPhases();
  Status RunBatch(size_t weights_left);
  Status RunLoop(size_t index, size_t weights_left);
  double KeepTimeSince(int64_t planned_ns);
  Status Search(const SloTarget& target);
  LoadPlan SearchPhase(const SloTarget& target, double load, uint64_t stream) const;
  Result<LevelRun> Level(const LoadPlan& phase, const Slo& limits);

  // Sends a phase, and adds its samples at that level.
  Status Take(const LoadPlan& phase, LoadLevel level, const std::string& name);
  ServingSummary SummariseSteady(const ServerLoadResult& load, const LoadPlan& phase,
                                 LoadLevel level);
  Status CheckAnswered(const ServerLoadResult& load);
  void Describe();

  void Add(const std::string& metric, LoadLevel level, double value);
  void Suspect(const std::string& reason);  // once each
  void CountOutput(const ServerLoadResult& load);
  void Keep(const ServerLoadResult& load, LoadLevel level, const char* name);
  double SecondsSince(int64_t then_ns) const;
  double SecondsUntil(int64_t then_ns) const;  // 0 if it is over
  // The limits of the SLO; none without an SLO.
  Slo limits() const { return request_.workload.slo.value_or(SloTarget()).limits; }

  LoadTarget& target_;
  const TrialRequest& request_;
  const Clock& clock_;
  int64_t end_ns_ = 0;   // when the load aims to end
  int64_t last_ns_ = 0;  // when it ends in any case
  bool is_warm_ = false;
  double warm_up_s_ = 0;
  int warm_up_batches_ = 0;
  double most_requests_per_s_ = 0;  // of the batch and the loops
  size_t output_tokens_ = 0;        // while energy was counted
  std::vector<int> generator_cpus_;
  double generator_cpu_share_ = 0, late_share_ = 0;  // the worst of all phases
  TrialResult result_;
};

}  // namespace pinion::harness
