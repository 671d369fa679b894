#include "harness/trial/measurement.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "engine/base/strings.h"
#include "harness/trial/conditions.h"
#include "harness/trial/slo_phase.h"

namespace pinion::harness {
namespace {

constexpr uint64_t kWarmUpStream = 0, kOfflineStream = 1, kFirstLoopStream = 2;

// The offline batch gets as much time as two loops.
constexpr size_t kOfflineWeight = 2;

// The largest shares of the remaining time for warm-ups: of the engine, and of each loop.
constexpr double kStartShare = 0.15, kLoopShare = 0.05;

// Extra time even for the shortest trial, because a machine may stall.
constexpr double kLeastGraceSeconds = 2;

int64_t Later(int64_t start_ns, double seconds) {
  return start_ns + static_cast<int64_t>(seconds * 1e9);
}

}  // namespace

std::string LoopName(const LoadPhase& phase) {
  return StrCat("loop of ", phase.clients, phase.clients == 1 ? " client" : " clients");
}

Measurement::Measurement(const TrialRequest& request, int64_t start_ns, const Clock& clock)
    : request_(request), clock_(clock) {
  // A slow start or a slow machine must not leave a candidate unmeasured; and an engine that took
  // two minutes to start deserves more than eight seconds of load.
  const double started_s = SecondsSince(start_ns);
  end_ns_ = std::max(Later(start_ns, request.limit_s),
                     Later(clock_.NowNs(), std::max(request.limit_s / 2, started_s)));
  last_ns_ = Later(end_ns_, std::max(request.limit_s / 2, kLeastGraceSeconds));
}

double Measurement::SecondsSince(int64_t then_ns) const {
  return static_cast<double>(clock_.NowNs() - then_ns) * 1e-9;
}

double Measurement::SecondsUntil(int64_t then_ns) const {
  return std::max(0.0, -SecondsSince(then_ns));
}

Result<TrialResult> Measurement::Run(const CounterTarget& target, int threads) {
  Status done = Measure(target, threads);
  if (!done && result_.too_slow.empty()) return Unexpected(std::move(done).error());
  return std::move(result_);
}

Status Measurement::Measure(const CounterTarget& target, int threads) {
  PINION_TRY(WarmUpFor(std::min(4, request_.workload.num_prompts), kStartShare));
  output_tokens_ = 0;
  const Conditions before = Conditions::Now();
  Counters counters = Counters::Start(target);
  PINION_TRY(RunPhases());
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
  return {};
}

// Runs the batch and the loops in an order drawn from the round's seed: none of them is always the
// first on a fresh machine, and all trials of a round agree. The search comes last: it looks for
// the load that the warm machine sustains.
Status Measurement::RunPhases() {
  const Workload& workload = request_.workload;
  const size_t loops = workload.concurrency.size(), batch = loops;
  size_t weights = kOfflineWeight + loops + (workload.slo ? kSloWeight : 0);
  std::vector<size_t> order(loops + 1);
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937_64 random(request_.seed);
  for (size_t i = loops; i > 0; --i) std::swap(order[i], order[random() % (i + 1)]);
  for (const size_t index : order) {
    if (index == batch) {
      PINION_TRY(RunBatch(std::exchange(weights, weights - kOfflineWeight)));
    } else {
      PINION_TRY(RunLoop(index, weights--));
    }
  }
  if (workload.slo) Search(*workload.slo);
  return {};
}

Status Measurement::RunBatch(size_t weights_left) {
  LoadPhase batch = Part(kOfflineWeight, weights_left);
  batch.stream = kOfflineStream;
  batch.clients = batch.requests = request_.workload.num_prompts;
  batch.stop_sending_s = std::numeric_limits<double>::infinity();
  return Offline(batch);
}

Status Measurement::RunLoop(size_t index, size_t weights_left) {
  const int clients = request_.workload.concurrency[index];
  PINION_TRY(WarmUpFor(clients, kLoopShare));
  LoadPhase loop = Part(1, weights_left);
  loop.stream = kFirstLoopStream + index;
  loop.clients = clients;
  loop.requests = std::max(clients, request_.workload.num_prompts);
  return ClosedLoop(loop);
}

// A phase's share of the remaining time, by its weight among the phases still to come.
LoadPhase Measurement::Part(size_t weight, size_t weights_left) const {
  const double part = static_cast<double>(weight) / static_cast<double>(weights_left);
  LoadPhase phase;
  phase.deadline_s = SecondsUntil(end_ns_) * part;
  phase.last_deadline_s = SecondsUntil(last_ns_) * part;
  // No new requests after this, so that those sent have time to end.
  phase.stop_sending_s = 0.6 * phase.deadline_s;
  return phase;
}

// Runs small batches until one is no longer faster than the one before it by more than 5 %: caches,
// page tables and primitive caches are then in their steady state. At most 4, and at most `share`
// of the remaining time.
Status Measurement::WarmUpFor(int clients, double share) {
  const int64_t start_ns = clock_.NowNs();
  const double limit_s = SecondsUntil(end_ns_) * share;
  double last_s = 0;
  for (int batch = 0; batch < 4 && SecondsSince(start_ns) < limit_s; ++batch) {
    LoadPhase phase;
    phase.stream = kWarmUpStream + (static_cast<uint64_t>(warm_up_batches_) << 20);
    phase.clients = phase.requests = clients;
    phase.most_output = 8;
    phase.stop_sending_s = phase.deadline_s = phase.last_deadline_s =
        limit_s - SecondsSince(start_ns);
    const int64_t batch_ns = clock_.NowNs();
    PINION_ASSIGN(const bool whole, WarmUp(phase));
    const double seconds = SecondsSince(batch_ns);
    ++warm_up_batches_;
    if (!whole || (batch > 0 && seconds > 0.95 * last_s)) break;
    last_s = seconds;
  }
  warm_up_s_ += SecondsSince(start_ns);
  return {};
}

// Each run is a load with prompts of its own, in a share of the remaining time.
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

tl::unexpected<Error> Measurement::TooSlow(const std::string& why) {
  result_.too_slow = why + "; raise --trial-limit, or shorten the load";
  return Fail(ErrorCode::kExhausted, result_.too_slow);
}

void Measurement::Suspect(const std::string& reason) {
  if (std::find(result_.suspect.begin(), result_.suspect.end(), reason) == result_.suspect.end())
    result_.suspect.push_back(reason);
}

}  // namespace pinion::harness
