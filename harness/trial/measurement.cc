#include "harness/trial/measurement.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "engine/base/strings.h"
#include "harness/counters/conditions.h"
#include "harness/load/steady.h"
#include "harness/load/summary.h"
#include "harness/trial/slo_phase.h"
#include "harness/trial/trial_deadline.h"
#include "harness/trial/trial_samples.h"

namespace pinion::harness {
namespace {

constexpr uint64_t kWarmUpStream = 0, kOfflineStream = 1, kFirstLoopStream = 2;

// The offline batch gets as much time as two loops.
constexpr size_t kOfflineWeight = 2;

constexpr char kBatch[] = "offline batch";

// Clients of a warm-up that no loop states, and the most tokens of its answers.
constexpr int kWarmUpClients = 4, kWarmUpTokens = 8;

// The largest shares of the remaining time for warm-ups: of the engine, and of each loop.
constexpr double kStartShare = 0.15, kLoopShare = 0.05;

// Extra time even for the shortest trial, because a machine may stall.
constexpr double kLeastGraceSeconds = 2;

int64_t Later(int64_t start_ns, double seconds) {
  return start_ns + static_cast<int64_t>(seconds * 1e9);
}

// A configuration that refuses requests, or breaks them off, has less to do than others. Nothing
// else disturbs it, so that no repetition at the end of the round helps: the trial has failed.
Status CheckNoneFailed(const ServerLoadResult& load, const std::string& name) {
  const auto has_failed = [](const RequestRecord& one) { return !one.complete() && !one.cut; };
  const auto& all = load.requests;
  const auto first = std::find_if(all.begin(), all.end(), has_failed);
  if (first == all.end()) return {};
  return Fail(ErrorCode::kFailed,
              StrCat(std::count_if(first, all.end(), has_failed), " of ", all.size(),
                     " requests of the ", name, " failed: ", first->error));
}

// Whether a load ended by its time: conversations were left to begin, or requests were cut off.
bool EndedByTime(const ServerLoadResult& load, const LoadPlan& phase) {
  const auto& all = load.requests;
  const auto begun =
      std::count_if(all.begin(), all.end(), [](const RequestRecord& one) { return one.turn == 0; });
  return begun < phase.num_prompts ||
         std::any_of(all.begin(), all.end(), [](const auto& one) { return one.cut; });
}

}  // namespace

Measurement::Measurement(LoadTarget& target, const TrialRequest& request, int64_t start_ns,
                         const Clock& clock)
    : target_(target), request_(request), clock_(clock) {
  // A slow start or a slow machine must not leave a candidate unmeasured; and an engine that took
  // two minutes to start deserves more than eight seconds of load.
  const double started_s = SecondsSince(start_ns);
  end_ns_ = std::max(Later(start_ns, request.limit_s),
                     Later(clock_.NowNs(), std::max(request.limit_s / 2, started_s)));
  last_ns_ = Later(end_ns_, std::max(request.limit_s / 2, kLeastGraceSeconds));
  if (!request.deadline_s) return;
  last_ns_ = std::min(last_ns_, Later(start_ns, kLoadShare * *request.deadline_s));
  end_ns_ = std::min(end_ns_, last_ns_);
}

double Measurement::SecondsSince(int64_t then_ns) const {
  return static_cast<double>(clock_.NowNs() - then_ns) * 1e-9;
}

double Measurement::SecondsUntil(int64_t then_ns) const {
  return std::max(0.0, -SecondsSince(then_ns));
}

Result<TrialResult> Measurement::Run() {
  if (auto warm = WarmUpAlone(); !warm) return Finish(std::move(warm));
  return Finish(Measure(true));
}

Result<TrialResult> Measurement::RunWarm(bool counts) {
  is_warm_ = true;
  return Finish(Measure(counts));
}

Result<TrialResult> Measurement::Finish(Status measured) {
  if (!measured && result_.too_slow.empty()) return Unexpected(std::move(measured).error());
  return std::move(result_);
}

Status Measurement::WarmUpAlone() {
  return WarmUpFor(std::min(kWarmUpClients, request_.workload.load.num_prompts), kStartShare);
}

Status Measurement::Measure(bool counts) {
  output_tokens_ = 0;
  const Conditions before = Conditions::Of(target_.processes());
  std::optional<Counters> counters;
  if (counts) counters = Counters::Start({target_.processes()});
  PINION_TRY(RunPhases());
  if (counters) AddCounters(counters->Stop(), output_tokens_, result_);
  const Conditions after = Conditions::Of(target_.processes());
  for (const std::string& reason : Disturbances(before, after, target_.threads())) Suspect(reason);
  Add("steal_share", 0, StealShare(before, after));
  Add("cpu_pressure_share", 0, PressureShare(before, after));
  Describe();
  return {};
}

void Measurement::Describe() {
  result_.info.warm_up_s = warm_up_s_;
  result_.info.warm_up_batches = warm_up_batches_;
  result_.info.generator = GeneratorPlace{.cpus = generator_cpus_, .late_share = late_share_};
  Add("generator_cpu_share", 0, generator_cpu_share_);
}

// Runs the batch, if there is one, and the loops in an order drawn from the round's seed: none of
// them is always the first on a fresh machine, and all trials of a round agree. The search comes
// last: it looks for the load that the warm machine sustains.
Status Measurement::RunPhases() {
  const Workload& workload = request_.workload;
  const size_t loops = workload.levels().size(), batch = loops;
  const bool has_batch = workload.runs_batch();
  size_t weights = (has_batch ? kOfflineWeight : 0) + loops + (workload.slo ? kSloWeight : 0);
  std::vector<size_t> order(loops + (has_batch ? 1 : 0));
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937_64 random(request_.seed);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  for (const size_t index : order) {
    if (index == batch) {
      PINION_TRY(RunBatch(std::exchange(weights, weights - kOfflineWeight)));
    } else {
      PINION_TRY(RunLoop(index, weights--));
    }
  }
  return workload.slo ? Search(*workload.slo) : Status();
}

Status Measurement::RunBatch(size_t weights_left) {
  LoadPlan batch = Part(kOfflineStream, kOfflineWeight, weights_left);
  batch.num_prompts = request_.batch_prompts.value_or(request_.workload.load.num_prompts);
  batch.concurrency = batch.num_prompts;
  batch.stop_sending_s = std::numeric_limits<double>::infinity();
  // Most of a batch's time goes into prompts, which yield hardly any tokens: one that is cut off
  // shortly before its end looks much slower than it is.
  const int64_t planned_ns = Later(clock_.NowNs(), batch.deadline_s);
  batch.deadline_s = *batch.last_deadline_s;
  PINION_TRY(Take(batch, 0, kBatch));
  if (const double over_s = KeepTimeSince(planned_ns); over_s > 0)
    result_.info.batch_over_s = over_s;
  return {};
}

// Moves the end by the time that a phase took beyond its planned end, in seconds, so that later
// ones keep their time.
double Measurement::KeepTimeSince(int64_t planned_ns) {
  const int64_t over_ns = std::max<int64_t>(0, clock_.NowNs() - planned_ns);
  end_ns_ = std::min(last_ns_, end_ns_ + over_ns);
  return static_cast<double>(over_ns) * 1e-9;
}

Status Measurement::RunLoop(size_t index, size_t weights_left) {
  const LoadLevel level = request_.workload.levels()[index];
  PINION_TRY(WarmUpFor(level.is_open() ? kWarmUpClients : level.clients, kLoopShare));
  LoadPlan loop = Part(kFirstLoopStream + index, 1, weights_left);
  loop.num_prompts = std::max(RequestsForSteadyWindow(level), loop.num_prompts);
  loop.concurrency = level.clients;
  if (level.is_open()) loop.arrivals.rate = level.rate;
  // Without an answer there is no figure: all the extra time may pass until the first.
  loop.last_deadline_s = loop.deadline_s + SecondsUntil(last_ns_) - SecondsUntil(end_ns_);
  const int64_t loop_end_ns = Later(clock_.NowNs(), loop.deadline_s);
  PINION_TRY(Take(loop, level, "loop of " + LevelText(level)));
  KeepTimeSince(loop_end_ns);
  return {};
}

// The load of the workload, with prompts of its own that are the same for every candidate of a
// round.
LoadPlan Measurement::Phase(uint64_t stream) const {
  LoadPlan phase = request_.workload.load;
  phase.seed = request_.seed ^ (stream << 32);
  return phase;
}

// A phase's share of the remaining time, by its weight among the phases still to come.
LoadPlan Measurement::Part(uint64_t stream, size_t weight, size_t weights_left) const {
  const double part = static_cast<double>(weight) / static_cast<double>(weights_left);
  LoadPlan phase = Phase(stream);
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
  if (is_warm_) return {};
  const int64_t start_ns = clock_.NowNs();
  const double limit_s = SecondsUntil(end_ns_) * share;
  double last_s = 0;
  for (int batch = 0; batch < 4 && SecondsSince(start_ns) < limit_s; ++batch) {
    LoadPlan phase = Phase(kWarmUpStream + (static_cast<uint64_t>(warm_up_batches_) << 20));
    phase.shape.name = kWarmUpShape;
    phase.shape.turns = 1;
    phase.shape.output = Lengths::Fixed(std::min(kWarmUpTokens, phase.shape.output_len()));
    phase.concurrency = clients;
    phase.stop_sending_s = phase.deadline_s = limit_s - SecondsSince(start_ns);
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

// Runs with prompts of their own, as long as whole ones fit into the time.
Status Measurement::Search(const SloTarget& target) {
  uint64_t stream = kFirstLoopStream + request_.workload.levels().size();
  Status failed;
  const auto run = [&](double load) -> Result<LevelRun> {
    const LoadPlan phase = SearchPhase(target, load, stream++);
    const double least_s = target.by_rate ? phase.stop_sending_s : 0;
    if (least_s >= SecondsUntil(end_ns_))
      return Fail(ErrorCode::kExhausted, "no time for another run");
    Result<LevelRun> level = Level(phase, target.limits);
    if (!level && level.error().code != ErrorCode::kExhausted) failed = Unexpected(level.error());
    return level;
  };
  const SloLevels levels = SearchInTrial(target, FirstLoad(target, most_requests_per_s_), run);
  DescribeSearch(target, levels, result_.info, result_.samples);
  return failed;
}

// At a rate, a run goes on until the last request has met the limits or missed them.
LoadPlan Measurement::SearchPhase(const SloTarget& target, double load, uint64_t stream) const {
  const double left_s = SecondsUntil(end_ns_);
  LoadPlan phase = Phase(stream);
  phase.num_prompts = std::max(phase.num_prompts, RequestsToJudge(target, load));
  phase.stop_sending_s = left_s;
  phase.deadline_s = left_s;
  if (!target.by_rate) {
    phase.concurrency = static_cast<int>(load);
    return phase;
  }
  phase.concurrency = 0;
  phase.arrivals.rate = load;
  phase.stop_sending_s = phase.num_prompts / load;
  if (const auto decided_s =
          SecondsToDecide(target.limits, static_cast<int>(phase.shape.output.High())))
    phase.deadline_s = std::min(left_s, phase.stop_sending_s + *decided_s);
  return phase;
}

void Measurement::Add(const std::string& metric, LoadLevel level, double value) {
  result_.samples.push_back({metric, level, value});
}

Result<bool> Measurement::WarmUp(LoadPlan phase) {
  phase.concurrency = phase.num_prompts = std::max(phase.concurrency, target_.replicas());
  PINION_ASSIGN(const PhaseResult sent, target_.Send(phase));
  CountOutput(sent.load);
  return std::none_of(sent.load.requests.begin(), sent.load.requests.end(),
                      [](const RequestRecord& one) { return one.cut; });
}

// An error (kExhausted) if requests were cut off before it was known whether they met the limits.
Result<LevelRun> Measurement::Level(const LoadPlan& phase, const Slo& limits) {
  PINION_ASSIGN(const PhaseResult sent, target_.Send(phase));
  const ServerLoadResult& load = sent.load;
  CountOutput(load);
  const auto& rate = phase.arrivals.rate;
  Keep(load, rate ? LoadLevel::AtRate(*rate) : phase.concurrency, "search");
  for (const RequestRecord& one : load.requests)
    if (!IsGood(one, load.open_loop, limits))
      return Fail(ErrorCode::kExhausted, "the time was over in the middle of a run");
  return RunOf(load, limits);
}

Status Measurement::Take(const LoadPlan& phase, LoadLevel level, const std::string& name) {
  PINION_ASSIGN(const PhaseResult sent, target_.Send(phase));
  const ServerLoadResult& load = sent.load;
  if (std::any_of(load.requests.begin(), load.requests.end(),
                  [](const RequestRecord& one) { return one.cut; }))
    result_.info.cut.push_back(name == kBatch ? kBatchCut : name + " cut");
  PINION_TRY(CheckAnswered(load));
  PINION_TRY(CheckNoneFailed(load, name));
  CountOutput(load);
  Keep(load, level, level.is_open() ? "rate" : level.any() ? "clients" : "batch");
  const ServingSummary summary =
      level.any() ? SummariseSteady(load, phase, level)
                  : SummariseWindow(load, {load.start_ns, load.end_ns, false}, limits());
  for (const std::string& fault : GeneratorFaults(load)) Suspect(fault);
  generator_cpus_ = load.generator.cpus;
  generator_cpu_share_ = std::max(generator_cpu_share_, load.generator.cpu_share);
  late_share_ = std::max(late_share_, LateShare(load));
  most_requests_per_s_ = std::max(most_requests_per_s_, summary.requests_per_s);
  if (sent.counted) AddCounted(*sent.counted, level, result_);
  if (sent.kv_used_share) Add("kv_used_share", level, *sent.kv_used_share);
  Add("output_tokens_per_s", level, summary.output_tokens_per_s);
  if (level.any()) AddServing(summary, level, request_.workload.slo.has_value(), result_);
  return {};
}

// The loop's steady part, which info "windows" tells.
ServingSummary Measurement::SummariseSteady(const ServerLoadResult& load, const LoadPlan& phase,
                                            LoadLevel level) {
  const SteadyWindow window = SteadyWindowOf(load, level);
  ServingSummary summary = SummariseWindow(load, window, limits());
  LoadWindow& told = result_.info.windows.emplace_back();
  told.level = level;
  told.requests = static_cast<int>(summary.requests);
  told.by_time = EndedByTime(load, phase);
  if (!window.is_steady) return summary;
  told.start_s = static_cast<double>(window.start_ns - load.start_ns) * 1e-9;
  told.end_s = static_cast<double>(window.end_ns - load.start_ns) * 1e-9;
  return summary;
}

// If no request was answered: the first error, other than a lack of time.
Status Measurement::CheckAnswered(const ServerLoadResult& load) {
  const bool any = std::any_of(load.requests.begin(), load.requests.end(),
                               [](const RequestRecord& one) { return one.complete(); });
  if (any) return {};
  const std::string no_answer =
      StrCat("no request was answered within ", request_.limit_s, " s of the trial");
  const auto refused = std::find_if(load.requests.begin(), load.requests.end(),
                                    [](const RequestRecord& one) { return !one.cut; });
  if (refused != load.requests.end())
    return Fail(ErrorCode::kFailed, StrCat(no_answer, ": ", refused->error));
  result_.too_slow = no_answer + "; raise --trial-limit, or shorten the load";
  return Fail(ErrorCode::kExhausted, result_.too_slow);
}

void Measurement::CountOutput(const ServerLoadResult& load) {
  for (const RequestRecord& one : load.requests) output_tokens_ += one.tokens();
}

void Measurement::Keep(const ServerLoadResult& load, LoadLevel level, const char* name) {
  for (const RequestRecord& one : load.requests) result_.requests.push_back({name, level, one});
}

void Measurement::Suspect(const std::string& reason) {
  if (std::find(result_.suspect.begin(), result_.suspect.end(), reason) == result_.suspect.end())
    result_.suspect.push_back(reason);
}

}  // namespace pinion::harness
