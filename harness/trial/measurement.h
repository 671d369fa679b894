#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/result.h"
#include "harness/counters/counters.h"
#include "harness/load/slo_search.h"
#include "harness/trial/trial.h"
#include "harness/trial/workload.h"

namespace pinion::harness {

// One part of a trial's load; times in seconds from its beginning.
struct LoadPhase {
  uint64_t stream = 0;  // of its prompts
  int clients = 1, requests = 1;
  std::optional<double> rate;  // open loop: requests/s, and `clients` is ignored
  int most_output = 0;         // warm-up: only first turns, with answers of at most so many tokens
  double stop_sending_s = 0;   // no request is sent after it
  double deadline_s = 0;       // running requests are cut off, once one has ended
  double last_deadline_s = 0;  // running requests are cut off in any case
};

std::string LoopName(const LoadPhase& phase);  // "loop of 4 clients"

// A trial's course, the same for every engine, so that their numbers can be compared: warm-up, the
// offline batch and a closed loop at every concurrency (after a warm-up of its own) in an order
// drawn from the seed, the search for the SLO's load; counters and disturbances around all but the
// warm-up. Engines differ in how a phase is sent and what is recorded.
class Measurement {
 public:
  // The limit counts from `start_ns`, but the load always gets half of it, and as long as the
  // start took.
  Measurement(const TrialRequest& request, int64_t start_ns, const Clock& clock = kMachineClock);
  virtual ~Measurement() = default;

  // `threads`: of the engine in this process; 1 if it is in another. Errors are the engine's.
  Result<TrialResult> Run(const CounterTarget& target, int threads);

 protected:
  virtual Result<bool> WarmUp(const LoadPhase& phase) = 0;  // false: it was cut off
  virtual Status Offline(const LoadPhase& phase) = 0;       // adds its samples at concurrency 0
  virtual Status ClosedLoop(const LoadPhase& phase) = 0;    // at concurrency phase.clients
  virtual Result<LevelRun> Level(const LoadPhase& phase, const Slo& limits) = 0;
  virtual void Describe(Json& info) = 0;

  const TrialRequest& request() const { return request_; }
  const Clock& clock() const { return clock_; }  // of all times of the trial
  double SecondsSince(int64_t then_ns) const;    // by that clock
  // The limits of the SLO; none without an SLO.
  Slo limits() const { return request_.workload.slo.value_or(SloTarget()).limits; }
  std::vector<MetricValue>& samples() { return result_.samples; }
  void Add(const std::string& metric, int concurrency, double value);
  void Distribute(const ServingSummary& summary, int concurrency);  // into info "quantiles"
  void Suspect(const std::string& reason);                          // once each
  void Cut(std::string what) { cut_.push_back(std::move(what)); }
  // The error of a phase whose load did not get far enough, which ends the trial as too slow.
  tl::unexpected<Error> TooSlow(const std::string& why);
  void CountOutput(size_t tokens) { output_tokens_ += tokens; }  // of warm-ups too
  void SetOutputHash(std::string hash) { result_.output_hash = std::move(hash); }

 private:
  LoadPhase Part(size_t weight, size_t weights_left) const;
  Status Measure(const CounterTarget& target, int threads);
  Status WarmUpFor(int clients, double share);
  Status RunPhases();
  Status RunBatch(size_t weights_left);
  Status RunLoop(size_t index, size_t weights_left);
  void Search(const SloTarget& target);

  double SecondsUntil(int64_t then_ns) const;  // 0 if it is over

  const TrialRequest& request_;
  const Clock& clock_;
  int64_t end_ns_ = 0;   // when the load aims to end
  int64_t last_ns_ = 0;  // when it ends in any case
  double warm_up_s_ = 0;
  int warm_up_batches_ = 0;
  size_t output_tokens_ = 0;  // while energy was counted
  std::vector<std::string> cut_;
  Json quantiles_ = Json::MakeArray();
  TrialResult result_;
};

}  // namespace pinion::harness
