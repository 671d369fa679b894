#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "../fake_clock.h"
#include "harness/trial/measurement.h"

namespace pinion::harness {

// A server that answers by a clock: a request's first token after `first_s`, each next one after
// `step_s`, whatever else they compute.
class FakeTarget final : public LoadTarget {
 public:
  FakeTarget() = default;
  explicit FakeTarget(const FakeClock& shared) : clock(shared) {}

  Result<PhaseResult> Send(const LoadPlan& phase) override {
    phases.push_back(phase);
    if (fails || (fails_at_rates && phase.open_loop()))
      return Fail(ErrorCode::kFailed, "the server ended with exit code 3");
    const bool is_loop = phase.shape.name != kWarmUpShape && phase.concurrency < phase.num_prompts;
    late_s_ = is_loop && slow_loops-- > 0 ? slow_s : 0;
    PhaseResult result;
    result.load.open_loop = phase.open_loop();
    const int64_t start_ns = result.load.start_ns = clock.NowNs();
    busy_until_ns_ = start_ns;  // what was cut off is no longer served
    const int clients = phase.open_loop() ? phase.num_prompts : phase.concurrency;
    std::vector<int64_t> free_ns(static_cast<size_t>(clients), start_ns);
    bool complete = false;
    for (int i = 0; i < phase.num_prompts; ++i) {
      const auto client = std::min_element(free_ns.begin(), free_ns.end());
      int64_t sent_ns = *client;
      if (phase.open_loop()) sent_ns = start_ns + Ns(i / *phase.arrivals.rate);
      if (i > 0 && sent_ns > start_ns + Ns(phase.stop_sending_s)) break;
      RequestRecord record = Answer(phase, sent_ns);
      if (fails_every > 0 && (i + 1) % fails_every == 0) Refuse(record);
      if (serves_s > 0) Queue(record);
      const int64_t deadline_ns =
          start_ns +
          Ns(complete ? phase.deadline_s : phase.last_deadline_s.value_or(phase.deadline_s));
      if (record.ended_ns > deadline_ns && !record.token_ns.empty()) Cut(deadline_ns, record);
      if (never_answers) Cut(deadline_ns, record);
      complete = complete || record.complete();
      *client = record.ended_ns;
      result.load.end_ns = std::max(result.load.end_ns, record.ended_ns);
      result.load.requests.push_back(std::move(record));
    }
    clock.SleepNs(result.load.end_ns - start_ns);
    result.load.generator = generator;
    result.counted = counted;
    result.kv_used_share = kv_used_share;
    return result;
  }
  std::vector<pid_t> processes() const override { return {}; }
  int replicas() const override { return engines; }
  int threads() const override { return 1; }
  void Settle(double limit_s) override { settled_s = limit_s; }

  const FakeClock own_clock = {};
  const FakeClock& clock = own_clock;
  double first_s = 0.002, step_s = 0.001;
  bool never_answers = false;  // requests wait until their deadline
  int slow_loops = 0;          // the first so many loops' answers take this much longer
  double slow_s = 0;
  bool fails = false, fails_at_rates = false;
  double serves_s = 0;  // requests are served one after the other, so long each; 0: all at once
  std::string error;    // of every request
  int fails_every = 0;  // every so many-th request of a load is refused
  int engines = 1;
  GeneratorLoad generator;
  std::optional<ServerCounters> counted;
  std::optional<double> kv_used_share;
  std::vector<LoadPlan> phases;
  std::optional<double> settled_s;  // the limit of the last Settle

 private:
  int64_t busy_until_ns_ = 0;
  double late_s_ = 0;  // of each answer of this load

  static int64_t Ns(double seconds) { return static_cast<int64_t>(std::min(seconds, 1e9) * 1e9); }

  RequestRecord Answer(const LoadPlan& phase, int64_t sent_ns) const {
    RequestRecord record;
    record.scheduled_ns = record.sent_ns = record.ended_ns = sent_ns;
    record.error = error;
    if (!error.empty() || never_answers) return record;
    for (int i = 0; i < phase.shape.output_len(); ++i)
      record.token_ns.push_back(sent_ns + Ns(late_s_ + first_s + i * step_s));
    record.ended_ns = record.token_ns.back();
    return record;
  }

  // The whole answer comes when the server has ended the one before and this one.
  void Queue(RequestRecord& record) {
    busy_until_ns_ = std::max(busy_until_ns_, record.sent_ns) + Ns(serves_s);
    for (int64_t& at_ns : record.token_ns) at_ns = busy_until_ns_;
    record.ended_ns = busy_until_ns_;
  }

  static void Refuse(RequestRecord& record) {
    record.token_ns.clear();
    record.ended_ns = record.sent_ns;
    record.error = "HTTP 500: out of order";
  }

  static void Cut(int64_t at_ns, RequestRecord& record) {
    std::erase_if(record.token_ns, [at_ns](int64_t time_ns) { return time_ns > at_ns; });
    record.ended_ns = at_ns;
    record.cut = true;
    record.error = "cut off";
  }
};

inline TrialRequest SmallRequest() {
  TrialRequest request;
  request.workload = {{.shape = WorkloadShape::Fixed(16, 4), .num_prompts = 6}, {1, 3}};
  request.seed = 5;
  request.limit_s = 20;
  return request;
}

// A limit on the first token, or on the whole answer.
inline SloTarget FirstWithin(double seconds) {
  return {{.ttft_s = seconds, .tpot_s = {}, .e2el_s = {}}};
}
inline SloTarget AnswerWithin(double seconds) {
  return {{.ttft_s = {}, .tpot_s = {}, .e2el_s = seconds}};
}

// The trial of servers that have just started, or `started_s` ago, by a clock that only their
// answers move: no machine is too slow for a limit.
inline Result<TrialResult> Measured(FakeTarget& target, const TrialRequest& request,
                                    double started_s = 0) {
  const int64_t start_ns = target.clock.NowNs() - static_cast<int64_t>(started_s * 1e9);
  return Measurement(target, request, start_ns, target.clock).Run();
}

inline const MetricValue* Find(const TrialResult& result, const std::string& metric,
                               LoadLevel level) {
  for (const MetricValue& sample : result.samples)
    if (sample.metric == metric && sample.level == level) return &sample;
  return nullptr;
}

}  // namespace pinion::harness
