#include "harness/trial/load.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

#include "engine/base/check.h"
#include "harness/stats/estimate.h"
#include "harness/stats/text.h"

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
  Loop(Engine& engine, const LoadPlan& plan)
      : engine_(engine),
        plan_(plan),
        cost_(engine.model().spec, DtypeOf(engine.info()), engine.info().kv_dtype,
              static_cast<int>(engine.info().plan.ranks.size())) {}

  Result<LoadResult> Run() {
    PINION_TRY(SendWhatIsDue());
    while (!live_.empty() || WaitForArrival()) {
      if (!live_.empty()) {
        Step();
        if (MustEnd()) {
          CutOff();
          break;
        }
        PINION_TRY(GoOn());
      }
      PINION_TRY(SendWhatIsDue());
    }
    result_.end_ns = Now();
    return std::move(result_);
  }

 private:
  // A conversation in progress.
  struct Talk {
    size_t conversation = 0, turn = 0;
    TokenConversation turns;
    std::vector<int32_t> said;  // by both sides
  };
  struct Live {
    size_t index = 0;  // in result_.clients
    std::shared_ptr<Talk> talk;
  };

  int64_t Now() const { return plan_.clock->NowNs() - paused_ns_; }

  bool MaySend() const {
    if (begun_ >= static_cast<size_t>(plan_.requests)) return false;
    return begun_ == 0 || Now() < plan_.stop_sending_ns;
  }

  // A loop without a single request measured nothing, so a slow configuration gets its first one.
  bool MustEnd() const {
    const int64_t now_ns = Now();
    return now_ns >= plan_.last_deadline_ns || (now_ns >= plan_.deadline_ns && complete_ > 0);
  }

  int64_t NextArrivalNs() const {
    return start_ns_ + static_cast<int64_t>((*plan_.arrival_s)[begun_] * 1e9);
  }

  Status SendWhatIsDue() {
    while (MaySend()) {
      int64_t due_ns = Now();
      if (plan_.arrival_s) {
        if (NextArrivalNs() > due_ns) break;
        due_ns = NextArrivalNs();
      } else if (live_.size() >= static_cast<size_t>(plan_.clients)) {
        break;
      }
      PINION_TRY(Begin(due_ns));
    }
    return {};
  }

  // With nothing to compute: until the next conversation is due. False: none will be.
  bool WaitForArrival() const {
    if (!plan_.arrival_s || !MaySend()) return false;
    const int64_t due_ns = NextArrivalNs();
    if (due_ns >= std::min({plan_.stop_sending_ns, plan_.deadline_ns, plan_.last_deadline_ns}))
      return false;
    plan_.clock->SleepNs(due_ns - Now());
    return true;
  }

  Status Begin(int64_t due_ns) {
    auto talk = std::make_shared<Talk>();
    talk->conversation = begun_++;
    talk->turns = plan_.conversation(static_cast<int>(talk->conversation));
    return Send(std::move(talk), due_ns);
  }

  // The next turns of those that were answered in the last step.
  Status GoOn() {
    for (auto& talk : std::exchange(answered_, {})) {
      if (talk->turn + 1 >= talk->turns.size() || Now() >= plan_.stop_sending_ns) continue;
      ++talk->turn;
      PINION_TRY(Send(std::move(talk), Now()));
    }
    return {};
  }

  Status Send(std::shared_ptr<Talk> talk, int64_t due_ns) {
    const TokenTurn& turn = talk->turns[talk->turn];
    talk->said.insert(talk->said.end(), turn.tokens.begin(), turn.tokens.end());
    Request request;
    request.id = NextRequestId();
    request.prompt_ids = talk->said;
    request.params.max_tokens = turn.output_len;
    request.params.ignore_eos = true;
    const uint64_t id = request.id;
    ClientTrace client;
    client.conversation = talk->conversation;
    client.turn = talk->turn;
    client.prompt_tokens = request.prompt_ids.size();
    client.times.sent_ns = due_ns;
    const int64_t could_ns = plan_.arrival_s ? std::max(free_ns_, due_ns) : free_ns_;
    result_.late_s.push_back(Seconds(could_ns, Now()));
    PINION_TRY(engine_.Add(std::move(request)));
    live_[id] = {result_.clients.size(), std::move(talk)};
    result_.clients.push_back(std::move(client));
    return {};
  }

  void Step() {
    const EngineStats before = engine_.stats();
    const int64_t start_ns = Now();
    events_.clear();
    engine_.Step(events_);
    const int64_t end_ns = free_ns_ = Now();
    const EngineStats after = engine_.stats();
    StepCost cost = CostOfStep();
    cost.weight_bytes += after.expert_bytes - before.expert_bytes;
    const uint64_t shared = after.shared_kv_bytes - before.shared_kv_bytes;
    cost.kv_bytes -= std::min(cost.kv_bytes, shared);  // CostOfStep counts each sequence alone
    const uint64_t prompt_tokens = after.prompt_tokens - before.prompt_tokens;
    const LoadStep step{prompt_tokens > 0, Seconds(start_ns, end_ns), cost};
    Account(step, prompt_tokens, after.output_tokens - before.output_tokens);
    AccountKv(before, after);
    for (const TokenEvent& event : events_) Take(event, end_ns);
    if (plan_.after_step) Pause([&] { plan_.after_step(step); });
  }

  void Pause(const std::function<void()>& meanwhile) {
    const int64_t start_ns = Now();
    meanwhile();
    paused_ns_ += Now() - start_ns;
  }

  // From the tokens that the step yielded, before they are taken.
  StepCost CostOfStep() const {
    const auto has_token = [](const TokenEvent& event) { return event.has_token; };
    StepCost cost = cost_.Weights(std::any_of(events_.begin(), events_.end(), has_token));
    for (const TokenEvent& event : events_) {
      const auto live = live_.find(event.request);
      if (!event.has_token || live == live_.end()) continue;
      const ClientTrace& client = result_.clients[live->second.index];
      const size_t prompt = client.prompt_tokens, drawn = client.tokens.size();
      const size_t cached = std::min(event.cached_tokens, prompt);
      cost += drawn == 0 ? cost_.Rows(cached, prompt - cached, 1)
                         : cost_.Rows(prompt + drawn - 1, 1, 1);
    }
    return cost;
  }

  void Account(const LoadStep& step, uint64_t prompt_tokens, uint64_t output_tokens) {
    StepTimes& steps = result_.steps;
    (step.prefills ? steps.prefill_cost : steps.decode_cost) += step.cost;
    (step.prefills ? steps.prefill_s : steps.decode_s) += step.seconds;
    if (step.prefills)
      steps.prompt_tokens += prompt_tokens;
    else
      steps.decode_tokens += output_tokens;
  }

  void AccountKv(const EngineStats& before, const EngineStats& after) {
    KvUse& kv = result_.kv;
    kv.preemptions += after.scheduler.preemptions - before.scheduler.preemptions;
    kv.prefix_query_tokens += after.kv.prefix_query_tokens - before.kv.prefix_query_tokens;
    kv.prefix_hit_tokens += after.kv.prefix_hit_tokens - before.kv.prefix_hit_tokens;
    kv.most_blocks = std::max(kv.most_blocks, after.blocks_used);
    kv.blocks = after.blocks_total;
  }

  void Take(const TokenEvent& event, int64_t now_ns) {
    const auto live = live_.find(event.request);
    if (live == live_.end()) return;
    ClientTrace& client = result_.clients[live->second.index];
    if (event.has_token) {
      if (client.tokens.empty() && event.scheduled_ns > 0) {
        client.queue_s = Seconds(event.arrived_ns, event.scheduled_ns);
        client.prefill_s = Seconds(event.scheduled_ns, event.first_token_ns);
      }
      client.times.token_ns.push_back(now_ns);
      client.tokens.push_back(event.token.id);
    }
    if (event.finish == FinishReason::kNone) return;
    client.complete = event.finish != FinishReason::kAborted && !client.tokens.empty();
    complete_ += client.complete ? 1 : 0;
    if (client.complete) {
      std::vector<int32_t>& said = live->second.talk->said;
      said.insert(said.end(), client.tokens.begin(), client.tokens.end());
      answered_.push_back(std::move(live->second.talk));
    }
    live_.erase(live);
  }

  void CutOff() {
    result_.cut = !live_.empty();
    for (const auto& [id, live] : live_) engine_.Abort(id);
    while (!engine_.idle()) {
      events_.clear();
      engine_.Step(events_);
    }
    live_.clear();
  }

  Engine& engine_;
  const LoadPlan& plan_;
  const CostModel cost_;
  LoadResult result_;
  std::unordered_map<uint64_t, Live> live_;  // by request id
  std::vector<std::shared_ptr<Talk>> answered_;
  const int64_t start_ns_ = plan_.clock->NowNs();
  size_t begun_ = 0;  // conversations
  std::vector<TokenEvent> events_;
  size_t complete_ = 0;
  int64_t paused_ns_ = 0;        // which the load's clock is behind CLOCK_MONOTONIC
  int64_t free_ns_ = start_ns_;  // since when the client could send
};

}  // namespace

std::string LateClient(const LoadResult& load) {
  constexpr double kShare = 0.01, kSeconds = 1e-3;
  const ServingSummary summary = Summarise(load.TracesWithDecode());
  const double late_s = Quantile(load.late_s, 0.95);
  if (late_s <= std::max(kSeconds, kShare * Median(summary.ttft_s))) return "";
  return Printf("late client: %.1f ms behind schedule at p95", late_s * 1e3);
}

kernels::Dtype DtypeOf(const EngineInfo& info) {
  using kernels::Dtype;
  for (Dtype dtype : {Dtype::kF32, Dtype::kBf16, Dtype::kF16})
    if (info.dtype == kernels::Name(dtype)) return dtype;
  CHECK(false) << "an engine of dtype '" << info.dtype << "'";
  return Dtype::kF32;
}

double StepTimes::prefill_tokens_per_s() const {
  return prefill_s > 0 ? static_cast<double>(prompt_tokens) / prefill_s : 0;
}

double StepTimes::decode_tokens_per_s() const {
  return decode_s > 0 ? static_cast<double>(decode_tokens) / decode_s : 0;
}

size_t LoadResult::OutputTokens() const {
  size_t tokens = 0;
  for (const ClientTrace& client : clients) tokens += client.tokens.size();
  return tokens;
}

std::vector<RequestTrace> LoadResult::CompleteTraces() const {
  std::vector<RequestTrace> traces;
  for (const ClientTrace& client : clients)
    if (client.complete) traces.push_back(client.times);
  return traces;
}

std::vector<RequestTrace> LoadResult::TracesWithDecode() const {
  std::vector<RequestTrace> traces;
  for (const ClientTrace& client : clients)
    if (client.times.token_ns.size() >= 2) traces.push_back(client.times);
  return traces;
}

std::function<TokenConversation(int index)> FirstTurns(
    std::function<TokenConversation(int index)> conversation, int tokens) {
  return [conversation = std::move(conversation), tokens](int index) {
    TokenConversation first = conversation(index);
    first.resize(1);
    first[0].output_len = std::min(first[0].output_len, tokens);
    return first;
  };
}

Result<LoadResult> RunLoad(Engine& engine, const LoadPlan& plan) {
  return Loop(engine, plan).Run();
}

}  // namespace pinion::harness
