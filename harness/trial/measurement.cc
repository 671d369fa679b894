#include "harness/trial/measurement.h"

#include <algorithm>
#include <limits>

#include "engine/base/clock.h"
#include "harness/trial/conditions.h"
#include "harness/trial/slo_phase.h"

namespace pinion::harness {
namespace {

constexpr uint64_t kWarmUpStream = 0, kOfflineStream = 1, kFirstLoopStream = 2;

// The offline batch takes as much of the time as two loops.
constexpr size_t kOfflineWeight = 2;

// What a stalled machine may add even to the shortest trial.
constexpr double kLeastGraceSeconds = 2;

int64_t Later(int64_t start_ns, double seconds) {
  return start_ns + static_cast<int64_t>(seconds * 1e9);
}

double SecondsUntil(int64_t then_ns) {
  return std::max(0.0, static_cast<double>(then_ns - NowNs()) * 1e-9);
}

}  // namespace

Measurement::Measurement(const TrialRequest& request, int64_t start_ns) : request_(request) {
  // A slow start or a slow machine must not leave a candidate unmeasured.
  end_ns_ = std::max(Later(start_ns, request.limit_s), Later(NowNs(), request.limit_s / 2));
  last_ns_ = Later(end_ns_, std::max(request.limit_s / 2, kLeastGraceSeconds));
}

Result<TrialResult> Measurement::Run(const CounterTarget& target, int threads) {
  PINION_TRY(WarmUpAll());
  const Conditions before = Conditions::Now();
  Counters counters = Counters::Start(target);
  const Workload& workload = request_.workload;
  size_t weights = kOfflineWeight + workload.concurrency.size() + (workload.slo ? kSloWeight : 0);
  LoadPhase offline = Part(kOfflineWeight, weights);
  offline.stream = kOfflineStream;
  offline.clients = offline.requests = workload.num_prompts;
  offline.stop_sending_s = std::numeric_limits<double>::infinity();
  PINION_TRY(Offline(offline));
  weights -= kOfflineWeight;
  for (size_t i = 0; i < workload.concurrency.size(); ++i) {
    LoadPhase loop = Part(1, weights--);
    loop.stream = kFirstLoopStream + i;
    loop.clients = workload.concurrency[i];
    loop.requests = std::max(loop.clients, workload.num_prompts);
    PINION_TRY(ClosedLoop(loop));
  }
  if (workload.slo) Search(*workload.slo);
  AddCounters(counters.Stop(), output_tokens_, result_);
  const Conditions after = Conditions::Now();
  for (const std::string& reason : Disturbances(before, after, threads)) Suspect(reason);
  Add("steal_share", 0, StealShare(before, after));
  Add("cpu_pressure_share", 0, PressureShare(before, after));
  result_.info.Set("warm_up_s", warm_up_s_);
  result_.info.Set("warm_up_batches", warm_up_batches_);
  result_.info.Set("cut", Json(cut_));
  result_.info.Set("quantiles", std::move(quantiles_));
  Describe(result_.info);
  return std::move(result_);
}

// A phase's part of the time that is left, by its weight among those still to come.
LoadPhase Measurement::Part(size_t weight, size_t weights_left) const {
  const double part = static_cast<double>(weight) / static_cast<double>(weights_left);
  LoadPhase phase;
  phase.deadline_s = SecondsUntil(end_ns_) * part;
  phase.last_deadline_s = SecondsUntil(last_ns_) * part;
  // Then nothing new is sent, so that what was sent has time to end.
  phase.stop_sending_s = 0.6 * phase.deadline_s;
  return phase;
}

// Small batches until one is no longer faster than the one before it by more than 5 %: caches, page
// tables and primitive caches are then as they will stay. At most 4, and at most 15 % of the time
// that is left.
Status Measurement::WarmUpAll() {
  const int64_t start_ns = NowNs();
  const double limit_s = SecondsUntil(end_ns_) * 0.15;
  double last_s = 0;
  for (uint64_t batch = 0; batch < 4 && SecondsSince(start_ns) < limit_s; ++batch) {
    LoadPhase phase;
    phase.stream = kWarmUpStream + (batch << 20);
    phase.clients = phase.requests = std::min(4, request_.workload.num_prompts);
    phase.most_output = 8;
    phase.stop_sending_s = phase.deadline_s = phase.last_deadline_s =
        limit_s - SecondsSince(start_ns);
    const int64_t batch_ns = NowNs();
    PINION_ASSIGN(const bool whole, WarmUp(phase));
    const double seconds = SecondsSince(batch_ns);
    ++warm_up_batches_;
    if (!whole || (batch > 0 && seconds > 0.95 * last_s)) break;
    last_s = seconds;
  }
  warm_up_s_ = SecondsSince(start_ns);
  return {};
}

// Each run a load of its own prompts and a part of the time that is left.
void Measurement::Search(const SloTarget& target) {
  uint64_t stream = kFirstLoopStream + request_.workload.concurrency.size();
  const auto run = [&](double load, size_t runs_left) {
    LoadPhase phase = Part(1, runs_left);
    phase.stream = stream++;
    if (target.by_rate) {
      phase.rate = load;
    } else {
      phase.clients = static_cast<int>(load);
    }
    phase.requests = std::max(2 * phase.clients, request_.workload.num_prompts);
    return Level(phase, target.limits);
  };
  SearchInTrial(target, run, result_);
}

void Measurement::Add(const std::string& metric, int concurrency, double value) {
  result_.samples.push_back({metric, concurrency, value});
}

void Measurement::Distribute(const ServingSummary& summary, int concurrency) {
  AddQuantiles(summary, concurrency, quantiles_);
}

void Measurement::Suspect(const std::string& reason) {
  if (std::find(result_.suspect.begin(), result_.suspect.end(), reason) == result_.suspect.end())
    result_.suspect.push_back(reason);
}

}  // namespace pinion::harness
