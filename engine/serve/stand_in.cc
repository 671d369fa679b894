#include "engine/serve/stand_in.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/run/capacity.h"

namespace pinion {
namespace {

constexpr size_t kBlockTokens = 16;

class StandIn final : public Engine {
 public:
  StandIn(const EngineOptions& options, ModelFiles files, size_t max_model_len, double tokens_per_s,
          const Clock& clock)
      : options_(options),
        files_(std::move(files)),
        clock_(clock),
        tokens_per_s_(tokens_per_s),
        period_ns_(static_cast<int64_t>(1e9 / tokens_per_s)) {
    info_.max_model_len = max_model_len;
    info_.block_tokens = kBlockTokens;
    // No request is refused for want of blocks.
    info_.blocks = (max_model_len + kBlockTokens - 1) / kBlockTokens;
    info_.kv_tokens = info_.blocks * kBlockTokens;
  }

  const EngineInfo& info() const override { return info_; }
  const ModelFiles& model() const override { return files_; }
  const FormatPlan& formats() const override { return formats_; }
  EngineStats stats() const override {
    EngineStats stats = stats_;
    stats.scheduler.running = live_.size();
    stats.blocks_total = info_.blocks;
    return stats;
  }
  Json ServerInfo() const override {
    Json out = Json::MakeObject();
    out.Set("options", ToJson(options_));
    out.Set("stand_in_tokens_per_s", tokens_per_s_);
    out.Set("max_model_len", static_cast<uint64_t>(info_.max_model_len));
    return out;
  }

  Status Add(Request request) override {
    const size_t prompt = request.prompt_ids.size();
    if (prompt == 0 || prompt > info_.max_model_len - (request.score ? 0 : 1))
      return Fail(ErrorCode::kUsage, StrCat("a prompt of ", prompt, " tokens, want 1 to ",
                                            info_.max_model_len - (request.score ? 0 : 1)));
    PINION_TRY(Validate(request.params));
    Live live;
    live.most =
        std::min(static_cast<size_t>(request.params.max_tokens), info_.max_model_len - prompt);
    if (request.score) live.most = 0;
    live.rates_prompt = request.params.prompt_logprobs >= 0;
    live.alternatives = request.params.logprobs;
    live.prompt = std::move(request.prompt_ids);
    live.arrived_ns = clock_.NowNs();
    const uint64_t id = request.id;
    stats_.prompt_tokens += prompt;
    live_.emplace(id, std::move(live));
    return {};
  }

  void Abort(uint64_t request) override {
    const auto found = live_.find(request);
    if (found == live_.end()) return;
    TokenEvent event = EventOf(request, found->second, clock_.NowNs());
    event.finish = FinishReason::kAborted;
    aborted_.push_back(std::move(event));
    live_.erase(found);
  }

  bool idle() const override { return live_.empty() && aborted_.empty(); }

  void Step(std::vector<TokenEvent>& events) override {
    std::move(aborted_.begin(), aborted_.end(), std::back_inserter(events));
    aborted_.clear();
    if (live_.empty()) return;
    const int64_t now = WaitForStep();
    ++stats_.steps;
    for (auto it = live_.begin(); it != live_.end();) {
      events.push_back(NextToken(it->first, it->second, now));
      stats_.output_tokens += events.back().has_token ? 1 : 0;
      it = events.back().finish == FinishReason::kNone ? std::next(it) : live_.erase(it);
    }
  }

  void SetScoreSink(ScoreSink) override {}
  void DropPrefixCache() override {}

 private:
  struct Live {
    std::vector<int32_t> prompt;
    size_t given = 0, most = 0;  // tokens
    int alternatives = 0;        // of each
    bool rates_prompt = false;
    int64_t arrived_ns = 0, first_token_ns = 0;
  };

  // Until a step's time after the last step, or from now if that was missed; the time it then is.
  int64_t WaitForStep() {
    const int64_t start = clock_.NowNs();
    step_ns_ = std::max(step_ns_, start - period_ns_) + period_ns_;
    for (int64_t now = start;; now = clock_.NowNs()) {
      if (now >= step_ns_) return now;
      clock_.SleepNs(step_ns_ - now);
    }
  }

  static TokenEvent EventOf(uint64_t id, const Live& live, int64_t now_ns) {
    TokenEvent event;
    event.request = id;
    event.prompt_tokens = live.prompt.size();
    event.output_tokens = live.given;
    event.arrived_ns = event.scheduled_ns = live.arrived_ns;
    event.first_token_ns = live.first_token_ns;
    event.now_ns = now_ns;
    return event;
  }

  // The token is certain: its alternatives are those behind it in the vocabulary.
  void AddAlternatives(const Live& live, SampledToken& token) const {
    constexpr double kUnlikely = -100;
    for (int i = 0; i < live.alternatives; ++i)
      token.top.emplace_back((token.id + i) % static_cast<int32_t>(files_.spec.vocabulary),
                             i == 0 ? 0 : kUnlikely);
  }

  TokenEvent NextToken(uint64_t id, Live& live, int64_t now_ns) const {
    const int32_t token = live.prompt[live.given % live.prompt.size()];
    const bool first = live.given == 0;
    if (first) live.first_token_ns = now_ns;
    if (live.most > 0) ++live.given;
    TokenEvent event = EventOf(id, live, now_ns);
    if (first && live.rates_prompt)
      for (size_t i = 1; i < live.prompt.size(); ++i)
        event.rated_prompt.push_back({live.prompt[i], 0, {}, 1});
    event.has_token = live.most > 0;
    event.token.id = token;
    AddAlternatives(live, event.token);
    if (live.given == live.most) event.finish = FinishReason::kLength;
    return event;
  }

  const EngineOptions options_;
  const ModelFiles files_;
  FormatPlan formats_;
  const Clock& clock_;
  const double tokens_per_s_;
  const int64_t period_ns_;
  EngineInfo info_;
  EngineStats stats_;
  std::map<uint64_t, Live> live_;
  std::vector<TokenEvent> aborted_;
  int64_t step_ns_ = 0;  // when the last step ended
};

}  // namespace

Result<std::unique_ptr<Engine>> StartStandIn(const EngineOptions& options, double tokens_per_s,
                                             const Clock& clock) {
  PINION_ASSIGN(ModelFiles files, FindModel(options.model));
  PINION_ASSIGN(const size_t length, ResolveModelLength(files.spec, options));
  LogInfo(StrCat("no model is computed: every request gets ", tokens_per_s,
                 " tokens a second (--stand-in)"));
  return std::make_unique<StandIn>(options, std::move(files), length, tokens_per_s, clock);
}

}  // namespace pinion
