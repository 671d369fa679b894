#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/run/engine.h"
#include "engine/run/step_work.h"

namespace pinion::harness {

// An engine that computes nothing: all waiting prompts in one step, then one token per running
// request and step. Tokens follow from the prompt alone.
class FakeEngine : public Engine {
 public:
  FakeEngine() {
    info_.isa = "fake";
    info_.dtype = "float32";
    info_.threads = 1;
    info_.load_s = 0.25;
    info_.start_s = 0.5;
    info_.plan.ranks.resize(1);
    info_.stages = Json::MakeArray();
    DecoderSpec& spec = model_.spec;
    spec.vocabulary = 100;
    spec.layers = 1;
    spec.layer_specs.resize(1);
    spec.hidden = spec.intermediate = 64;
    spec.heads = spec.kv_heads = 1;
    spec.head_dim = 64;
    spec.tied_head = true;
  }

  const EngineInfo& info() const override { return info_; }
  const ModelFiles& model() const override { return model_; }
  const FormatPlan& formats() const override { return formats_; }
  EngineStats stats() const override {
    EngineStats stats = stats_;
    stats.waited_s = {waited_s_};
    if (work_) stats.prefill = work_->prefill(), stats.decode = work_->decode();
    return stats;
  }
  Json ServerInfo() const override { return {}; }

  Status Add(Request request) override {
    if (request.prompt_ids.empty()) return Fail(ErrorCode::kUsage, "empty prompt");
    most_live = std::max(most_live, live_.size() + 1);
    prompts.push_back(request.prompt_ids);
    live_.push_back({std::move(request), clock->NowNs(), 0, false});
    return {};
  }
  void Abort(uint64_t id) override {
    for (Live& live : live_)
      if (live.request.id == id) live.aborted = true;
  }
  bool idle() const override { return live_.empty(); }

  void Step(std::vector<TokenEvent>& events) override {
    const bool prefill =
        std::any_of(live_.begin(), live_.end(), [](const Live& live) { return live.drawn == 0; });
    const int64_t time_ns = step_ns + (prefill ? prefill_ns : 0);
    clock->SleepNs(time_ns);
    waited_s_ += wait_share * static_cast<double>(time_ns) * 1e-9;
    uint64_t prompt_tokens = 0;
    std::vector<Slice> slices;
    for (Live& live : live_) {
      if (live.aborted) {
        events.push_back(Event(live, FinishReason::kAborted, false));
      } else if (!gives_up.empty()) {
        live.aborted = true;
        events.push_back(Event(live, FinishReason::kAborted, false));
        events.back().error = gives_up;
      } else if (!never_answers && (!prefill || live.drawn == 0)) {
        const size_t prompt = live.request.prompt_ids.size();
        if (live.drawn == 0) {
          const size_t first = std::min(cached_tokens, prompt);
          slices.push_back({nullptr, first, prompt - first, true});
          prompt_tokens += prompt;
        } else {
          slices.push_back({nullptr, prompt + static_cast<size_t>(live.drawn) - 1, 1, true});
        }
        ++live.drawn;
        ++stats_.output_tokens;
        events.push_back(
            Event(live, Done(live) ? FinishReason::kLength : FinishReason::kNone, true));
      }
    }
    std::erase_if(live_, [this](const Live& live) { return live.aborted || Done(live); });
    ++stats_.steps;
    stats_.prompt_tokens += prompt_tokens;
    if (!work_) work_.emplace(model_.spec, formats_, info_);
    work_->Add(slices, prompt_tokens, {}, {.ns = time_ns});
  }
  void SetScoreSink(ScoreSink) override {}
  void DropPrefixCache() override { ++cold_starts; }

  const Clock* clock = &kMachineClock;
  int64_t step_ns = 0;         // how long a step takes
  int64_t prefill_ns = 0;      // and how much longer one that computes prompts
  double wait_share = 0;       // of a step, for which its thread waits
  size_t cached_tokens = 0;    // of every prompt, in the prefix cache
  bool never_ends = false;     // no request ever finishes
  bool never_answers = false;  // nor yields a token
  std::string gives_up;        // why every request ends at once; empty: none does
  int cold_starts = 0;
  size_t most_live = 0;
  std::vector<std::vector<int32_t>> prompts;  // of every request so far

 private:
  double waited_s_ = 0;
  struct Live {
    Request request;
    int64_t arrived_ns = 0;
    int drawn = 0;
    bool aborted = false;
  };

  bool Done(const Live& live) const {
    return !never_ends && !never_answers && live.drawn >= live.request.params.max_tokens;
  }

  TokenEvent Event(const Live& live, FinishReason finish, bool has_token) const {
    TokenEvent event;
    event.request = live.request.id;
    event.has_token = has_token;
    event.token.id = (live.request.prompt_ids[0] + live.drawn) % 100;
    event.finish = finish;
    event.cached_tokens = cached_tokens;
    event.arrived_ns = live.arrived_ns;
    event.scheduled_ns = live.arrived_ns + 1'000'000;
    event.first_token_ns = live.arrived_ns + 3'000'000;
    return event;
  }

  EngineInfo info_;
  ModelFiles model_;
  FormatPlan formats_ = kernels::Dtype::kF32;
  EngineStats stats_;
  std::optional<StepWorkMeter> work_;
  std::deque<Live> live_;
};

}  // namespace pinion::harness
