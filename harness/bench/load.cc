#include "harness/bench/load.h"

#include <unordered_map>
#include <utility>

namespace pinion::harness {
namespace {

double Seconds(int64_t from_ns, int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-9;
}

// Request ids of all loads of a process: unique, as the engine demands of live ones.
uint64_t NextRequestId() {
  static uint64_t next = 0;
  return ++next;
}

class Loop {
 public:
  Loop(Engine& engine, const EngineLoad& plan) : engine_(engine), plan_(plan) {}

  Result<LoadResult> Run() {
    const EngineStats before = engine_.stats();
    do {
      while (live_.size() < static_cast<size_t>(plan_.clients) && sent_ < plan_.requests)
        PINION_TRY(Send());
      Step();
      PINION_TRY(failure_);
    } while (!live_.empty() || sent_ < plan_.requests);
    const EngineStats after = engine_.stats();
    result_.prefill = after.prefill - before.prefill;
    result_.decode = after.decode - before.decode;
    result_.end_ns = Now();
    return std::move(result_);
  }

 private:
  int64_t Now() const { return plan_.clock->NowNs() - paused_ns_; }

  Status Send() {
    Request request;
    request.id = NextRequestId();
    request.prompt_ids = plan_.prompt(sent_++);
    request.pool = plan_.pools;
    request.params.max_tokens = plan_.output_len;
    request.params.ignore_eos = true;
    live_[request.id] = result_.clients.size();
    ClientTrace client;
    client.times.sent_ns = Now();
    result_.clients.push_back(std::move(client));
    return engine_.Add(std::move(request));
  }

  void Step() {
    const EngineStats before = engine_.stats();
    events_.clear();
    engine_.Step(events_);
    const int64_t end_ns = Now();
    for (const TokenEvent& event : events_) Take(event, end_ns);
    if (plan_.after_step) Pause(before);
  }

  void Pause(const EngineStats& before) {
    const int64_t start_ns = Now();
    const EngineStats after = engine_.stats();
    const StepWork prefill = after.prefill - before.prefill, decode = after.decode - before.decode;
    const bool prefills = prefill.tokens > 0;
    const StepWork& work = prefills ? prefill : decode;
    plan_.after_step({prefills, work.seconds, work.least});
    paused_ns_ += Now() - start_ns;
  }

  void Take(const TokenEvent& event, int64_t now_ns) {
    const auto live = live_.find(event.request);
    if (live == live_.end()) return;
    if (!event.error.empty()) failure_ = Fail(ErrorCode::kFailed, event.error);
    ClientTrace& client = result_.clients[live->second];
    if (event.has_token) {
      if (client.tokens.empty() && event.scheduled_ns > 0) {
        client.queue_s = Seconds(event.arrived_ns, event.scheduled_ns);
        client.prefill_s = Seconds(event.scheduled_ns, event.first_token_ns);
      }
      client.times.token_ns.push_back(now_ns);
      client.tokens.push_back(event.token.id);
    }
    if (plan_.pools && event.finish != FinishReason::kNone) client.times.token_ns.push_back(now_ns);
    if (event.finish != FinishReason::kNone) live_.erase(live);
  }

  Engine& engine_;
  const EngineLoad& plan_;
  LoadResult result_;
  std::unordered_map<uint64_t, size_t> live_;  // request id -> index in result_.clients
  int sent_ = 0;
  std::vector<TokenEvent> events_;
  Status failure_;         // why the engine gave a request up
  int64_t paused_ns_ = 0;  // which the load's clock is behind CLOCK_MONOTONIC
};

}  // namespace

size_t LoadResult::OutputTokens() const {
  size_t tokens = 0;
  for (const ClientTrace& client : clients) tokens += client.tokens.size();
  return tokens;
}

std::vector<RequestTrace> LoadResult::Traces() const {
  std::vector<RequestTrace> traces;
  for (const ClientTrace& client : clients) traces.push_back(client.times);
  return traces;
}

Result<LoadResult> RunLoad(Engine& engine, const EngineLoad& plan) {
  return Loop(engine, plan).Run();
}

}  // namespace pinion::harness
