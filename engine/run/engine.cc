#include "engine/run/engine.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/strings.h"
#include "engine/base/trace.h"
#include "engine/host/affinity.h"
#include "engine/run/constrained.h"
#include "engine/run/prefill_role.h"
#include "engine/run/server_info.h"
#include "engine/run/start.h"
#include "engine/run/step_layout.h"
#include "engine/run/step_work.h"

namespace pinion {
namespace {

TokenEvent MakeEvent(const Sequence& sequence, int64_t now_ns) {
  TokenEvent event;
  event.request = sequence.id;
  event.finish = sequence.finish;
  event.prompt_tokens = sequence.prompt_tokens;
  event.cached_tokens = sequence.cached_prompt_tokens;
  event.preemptions = static_cast<size_t>(sequence.preemptions);
  event.output_tokens = sequence.output_tokens();
  event.arrived_ns = sequence.arrived_ns;
  event.scheduled_ns = sequence.scheduled_ns;
  event.first_token_ns = sequence.first_token_ns;
  event.now_ns = now_ns;
  return event;
}

// Of touching the KV cache ahead of its use: while idle, before an arriving request is looked at;
// beside steps, the part of the last one's time.
constexpr int64_t kIdleTouchNs = 10'000'000;
constexpr int64_t kStepTouchPart = 32;
// Of taking what other engines have computed: while idle, before messages are looked at; beside
// steps, the part of the last one's time.
constexpr int64_t kIdleTakeNs = 10'000'000;
constexpr int64_t kStepTakePart = 8;

class EngineLoop : public Engine, private StepCaller {
 public:
  EngineLoop(StartedModel model, std::vector<int> cpus, const MakePrefillRole& make_role)
      : model_(std::move(model)),
        pool_(model_.info.blocks, model_.info.block_tokens, model_.options.prefix_caching),
        states_(static_cast<int32_t>(model_.options.max_num_seqs), model_.info.kept_states),
        scheduler_({static_cast<size_t>(model_.options.max_num_batched_tokens),
                    static_cast<size_t>(model_.options.max_num_seqs), model_.info.max_model_len,
                    BoundOfSteps(model_.options), model_.info.kv_reaches},
                   pool_, model_.step_times.get(), kMachineClock,
                   states_.total() > 0 ? &states_ : nullptr),
        layout_(model_.files.spec, model_.pooler.get(), model_.cut, model_.options.seed),
        work_(model_.files.spec, model_.formats, model_.info),
        constrained_(GrammarVocabularyOf(model_.files), std::move(cpus)),
        role_(make_role({pool_, model_.info.kv_reaches, states_.total() > 0 ? &states_ : nullptr,
                         scheduler_, *model_.executor, model_.files.spec.vocabulary,
                         [this](uint64_t id) { Abort(id); }})) {}

  const EngineInfo& info() const override { return model_.info; }
  const ModelFiles& model() const override { return model_.files; }
  const FormatPlan& formats() const override { return model_.formats; }
  bool idle() const override { return !HasOwnWork() && role_->idle(); }
  int wait_ms() const override { return HasOwnWork() ? 0 : role_->wait_ms(); }
  int wake_fd() const override { return role_->wake_fd(); }
  void SetScoreSink(ScoreSink sink) override { score_sink_ = std::move(sink); }
  void DropPrefixCache() override {
    pool_.DropCached();
    states_.Drop();
  }

  EngineStats stats() const override {
    EngineStats stats;
    stats.scheduler = scheduler_.stats();
    stats.scheduler.waiting += constrained_.held() + role_->kept();
    stats.kv = pool_.stats();
    stats.blocks_used = pool_.used();
    stats.blocks_total = pool_.total();
    stats.steps = steps_;
    stats.prompt_tokens = prompt_tokens_;
    stats.output_tokens = output_tokens_;
    stats.prefill = work_.prefill();
    stats.decode = work_.decode();
    stats.shared_kv_bytes = model_.executor->reads().shared_kv_bytes;
    stats.waited_s = model_.executor->waited_s();
    stats.traffic = ExchangedSoFar();
    stats.transfer = role_->stats();
    return stats;
  }

  Json ServerInfo() const override;

  Status Add(Request request) override {
    PINION_TRY(CheckTask(request));
    const int vocabulary = model_.files.spec.vocabulary;
    for (int32_t id : request.prompt_ids)
      if (id < 0 || id >= vocabulary)
        return Fail(ErrorCode::kUsage, StrCat("prompt token ", id, " is outside the vocabulary of ",
                                              vocabulary, " tokens"));
    PINION_TRY(Validate(request.params));
    const auto unknown = FindUnknownId(request.params, static_cast<size_t>(vocabulary));
    if (unknown)
      return Fail(ErrorCode::kUsage, Describe(*unknown, static_cast<size_t>(vocabulary)));
    auto sequence = std::make_unique<Sequence>();
    sequence->id = request.id;
    sequence->prompt_tokens = request.prompt_ids.size();
    sequence->tokens = std::move(request.prompt_ids);
    sequence->score = request.score || request.pool;
    sequence->pool = request.pool;
    sequence->whole = model_.files.spec.bidirectional;
    sequence->types = std::move(request.types);
    sequence->priority = request.priority;
    sequence->group = request.group;
    sequence->before_first = HashSalt(request.cache_salt);
    sequence->cache_salt = std::move(request.cache_salt);
    const bool replaces = !request.params.eos_ids.empty() && !request.grammar;
    sequence->eos_ids = replaces ? request.params.eos_ids : model_.files.spec.eos_ids;
    sequence->arrived_ns = NowNs();
    sequence->params = std::move(request.params);
    if (request.grammar && !sequence->score)
      return constrained_.Hold(std::move(sequence), std::move(request.grammar));
    return Admit(std::move(sequence));
  }

  void Abort(uint64_t request) override {
    auto sequence = scheduler_.Abort(request);
    if (!sequence) sequence = constrained_.Abort(request);
    if (!sequence) sequence = role_->Abort(request);
    if (!sequence) return;
    layout_.End(*sequence);
    constrained_.End(sequence->mask_row);
    if (sequence->pool) model_.pooler->Drop(request);
    if (!role_->Owns(request)) aborted_.push_back(MakeEvent(*sequence, NowNs()));
  }

  void Step(std::vector<TokenEvent>& events) override {
    const TraceSpan span("step", "number", steps_);
    for (TokenEvent& event : aborted_) events.push_back(std::move(event));
    aborted_.clear();
    if (constrained_.held() > 0) AddBegun(events);
    role_->BeforeStep(scheduler_.idle() ? kIdleTakeNs : step_ns_ / kStepTakePart);
    if (!scheduler_.idle()) TouchAhead(step_ns_ / kStepTouchPart, /*half=*/true);
    const int64_t start_ns = NowNs();
    const uint64_t prompt_tokens = prompt_tokens_;
    const StepReads before = model_.executor->reads();
    const Traffic exchanged = ExchangedSoFar();
    const std::vector<Slice>& slices = Schedule();
    if (slices.empty()) return;
    CountPrompts(slices);
    StepOutput output = model_.executor->Execute(*input_, *this);
    CHECK(output.tokens.size() == input_->wanted.size()) << output.tokens.size() << " tokens";
    ++steps_;
    work_.Add(slices, prompt_tokens_ - prompt_tokens, SecondsSince(start_ns), before,
              model_.executor->reads(), ExchangedSoFar() - exchanged);
    Commit(std::move(output.tokens), events);
    step_ns_ = NowNs() - start_ns;
  }

  bool Prepare() override { return TouchAhead(kIdleTouchNs, /*half=*/false); }

 private:
  // A model does what it was started for; types are those that it has.
  Status CheckTask(const Request& request) const {
    if (request.pool != (model_.pooler != nullptr))
      return Fail(ErrorCode::kUsage,
                  StrCat("the model was started to ", Name(model_.info.task), ", not to ",
                         request.pool ? "embed or score" : "generate"));
    if (!request.types.empty() && request.types.size() != request.prompt_ids.size())
      return Fail(ErrorCode::kUsage, StrCat("there are ", request.types.size(), " types for ",
                                            request.prompt_ids.size(), " tokens"));
    const int types = std::max(1, model_.files.spec.token_types);
    for (const int32_t type : request.types)
      if (type < 0 || type >= types)
        return Fail(ErrorCode::kUsage,
                    StrCat("token type ", type, " is not one of the model's ", types));
    return {};
  }

  bool HasOwnWork() const {
    return !scheduler_.idle() || !aborted_.empty() || constrained_.held() > 0;
  }

  // Lets a sequence that can run wait for its turn, or for another engine to compute its prompt.
  Status Admit(std::unique_ptr<Sequence> sequence) {
    PINION_TRY(scheduler_.Check(*sequence));
    if (role_->Keep(sequence)) return {};
    return scheduler_.Add(std::move(sequence));
  }

  const std::vector<Slice>& Schedule() {
    const TraceSpan span("schedule");
    const std::vector<Slice>& slices = scheduler_.Schedule();
    if (!slices.empty()) input_ = &layout_.Lay(slices, score_sink_ != nullptr);
    return slices;
  }

  Traffic ExchangedSoFar() const { return model_.counted ? model_.counted->traffic() : Traffic{}; }

  // Makes KV memory ready ahead of its use for about so long, but at least a piece for every
  // thread; false: there is none left.
  bool TouchAhead(int64_t ns, bool half) {
    const int64_t began_ns = NowNs();
    do {
      if (!model_.executor->AheadOfUse(pool_.reached(), half)) return false;
      model_.executor->PrepareKv(pool_.reached(), half);
    } while (NowNs() - began_ns < ns);
    return true;
  }

  // Recomputation after a preemption does not count as new prompt tokens.
  void CountPrompts(const std::vector<Slice>& slices) {
    for (const Slice& slice : slices) {
      const Sequence& sequence = *slice.sequence;
      if (sequence.preemptions == 0 && slice.first < sequence.prompt_tokens)
        prompt_tokens_ += std::min(slice.count, sequence.prompt_tokens - slice.first);
    }
  }

  std::span<const uint32_t> Mask(size_t wanted) override {
    return constrained_.Await(layout_.sequence(wanted));
  }

  void Take(size_t wanted, const float* row, size_t width) override {
    const Sequence& sequence = layout_.sequence(wanted);
    if (sequence.pool)
      model_.pooler->Take(sequence.id, layout_.position(wanted), row, width);
    else
      score_sink_(sequence.id, layout_.position(wanted), row, width);
  }

  // Hands the scheduler the sequences whose grammars have been read.
  void AddBegun(std::vector<TokenEvent>& events) {
    for (auto& [sequence, error] : constrained_.TakeBegun(/*waits=*/scheduler_.idle())) {
      TokenEvent event = MakeEvent(*sequence, NowNs());
      const int32_t row = sequence->mask_row;
      event.error = std::move(error);
      if (event.error.empty()) {
        auto added = Admit(std::move(sequence));
        if (added) continue;
        event.error = added.error().message;
      }
      constrained_.End(row);
      event.finish = FinishReason::kAborted;
      events.push_back(std::move(event));
    }
  }

  // Moves grammars on by the step's tokens, and ends the sequences whose grammar has no mask.
  // `sampled`: by wanted row; `events`: of the step, one for each sequence that has a token.
  void AdvanceGrammars(std::span<const int32_t> sampled, std::span<TokenEvent> events) {
    bool any = false;
    for (size_t i = 0; i < layout_.wanted().size(); ++i) {
      if (!layout_.wanted()[i].constrained) continue;
      const Sequence& sequence = layout_.sequence(i);
      any = true;
      if (sampled[i] < 0)
        GiveUp(sequence, events);
      else if (sequence.finish != FinishReason::kNone)
        constrained_.End(sequence.mask_row);
      else
        constrained_.Take(sequence);
    }
    if (any) constrained_.SendTaken();
  }

  void GiveUp(const Sequence& sequence, std::span<TokenEvent> events) {
    const int32_t row = sequence.mask_row;
    for (TokenEvent& event : events) {
      if (event.request != sequence.id) continue;
      event.has_token = false;
      event.finish = FinishReason::kAborted;
      event.error = constrained_.failure(sequence);
    }
    if (sequence.finish == FinishReason::kNone) {
      layout_.End(sequence);
      scheduler_.Abort(sequence.id);
    }
    constrained_.End(row);
  }

  // Adds to a sequence's event of this step what came of a row.
  static void AddToken(const WantedRow& wanted, SampledToken token, TokenEvent& event) {
    if (wanted.use == RowUse::kRating) return event.rated_prompt.push_back(std::move(token));
    event.has_token = true;
    event.token = std::move(token);
    ++event.output_tokens;
  }

  // One event for each sequence that has a token, in the order of the step, while all are alive.
  // `emitting`: whose they are.
  void Emit(std::vector<SampledToken> tokens, int64_t now, std::vector<TokenEvent>& events,
            std::vector<const Sequence*>& emitting) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const WantedRow& wanted = layout_.wanted()[i];
      if (wanted.use == RowUse::kItself) continue;
      Sequence& sequence = layout_.sequence(i);
      if (wanted.use == RowUse::kToken && sequence.first_token_ns == 0)
        sequence.first_token_ns = now;
      if (emitting.empty() || emitting.back() != &sequence) {
        emitting.push_back(&sequence);
        events.push_back(MakeEvent(sequence, now));
      }
      events.back().first_token_ns = sequence.first_token_ns;
      AddToken(wanted, std::move(tokens[i]), events.back());
    }
  }

  // Events for the tokens that jumped, behind the event of the token that was chosen.
  void EmitJumped(const Sequence& sequence, int64_t now, std::vector<TokenEvent>& events) {
    for (size_t left = sequence.jumped; left > 0; --left) {
      TokenEvent& event = events.emplace_back(MakeEvent(sequence, now));
      event.has_token = true;
      event.token.id = sequence.tokens[sequence.tokens.size() - left];
      event.output_tokens -= left - 1;
      event.finish = FinishReason::kNone;
    }
    if (!role_->Owns(sequence.id)) output_tokens_ += sequence.jumped;
  }

  // The scheduler's Commit ends sequences, so events are made before it and get their finish reason
  // after it.
  void Commit(std::vector<SampledToken> tokens, std::vector<TokenEvent>& events) {
    const TraceSpan span("commit");
    const int64_t now = NowNs();
    std::vector<int32_t> ids, sampled;
    following_.clear();
    for (size_t i = 0; i < tokens.size(); ++i) {
      const WantedRow& wanted = layout_.wanted()[i];
      ids.push_back(tokens[i].id);
      if (wanted.use != RowUse::kToken) continue;
      sampled.push_back(tokens[i].id);
      if (wanted.constrained && tokens[i].id >= 0) {
        following_.resize(sampled.size());
        following_.back() = constrained_.Following(layout_.sequence(i), tokens[i].id);
      }
      if (!role_->Owns(layout_.sequence(i).id)) ++output_tokens_;
    }
    std::vector<const Sequence*> emitting;
    const size_t first_event = events.size();
    Emit(std::move(tokens), now, events, emitting);
    if (!following_.empty()) following_.resize(sampled.size());
    const auto all_finished = scheduler_.Commit(sampled, following_);
    std::vector<size_t> last_events;  // of those that are emitting
    for (size_t i = 0; i < emitting.size(); ++i) {
      const Sequence& sequence = *emitting[i];
      last_events.push_back(first_event + i);
      if (!events[first_event + i].has_token || sequence.jumped == 0) continue;
      EmitJumped(sequence, now, events);
      last_events.back() = events.size() - 1;
    }
    for (const auto& finished : all_finished) {
      layout_.End(*finished);
      const auto at = std::find(emitting.begin(), emitting.end(), finished.get());
      if (at != emitting.end())
        events[last_events[static_cast<size_t>(at - emitting.begin())]].finish = finished->finish;
      else
        events.push_back(MakeEvent(*finished, now));
      if (finished->pool)
        events.back().pooled = model_.pooler->Finish(finished->id, finished->tokens.size());
    }
    AdvanceGrammars(ids, std::span(events).subspan(first_event));
    role_->AfterStep(all_finished);
    const auto first = events.begin() + static_cast<ptrdiff_t>(first_event);
    events.erase(std::remove_if(first, events.end(),
                                [this](const TokenEvent& one) { return role_->Owns(one.request); }),
                 events.end());
  }

  StartedModel model_;
  BlockPool pool_;
  StatePool states_;
  Scheduler scheduler_;
  StepLayout layout_;
  const StepInput* input_ = nullptr;  // of the last step
  int64_t step_ns_ = 0;               // that the last step took
  StepWorkMeter work_;
  Constrained constrained_;
  Scheduler::Following following_;  // of a step; empty if none of its sequences is constrained
  std::unique_ptr<PrefillRole> role_;
  ScoreSink score_sink_;
  std::vector<TokenEvent> aborted_;
  uint64_t steps_ = 0, prompt_tokens_ = 0, output_tokens_ = 0;
};

Json EngineLoop::ServerInfo() const {
  Json out = ServerInfoOf(model_, stats(), scheduler_.stats());
  if (Json role = role_->ToJson(); !role.is_null()) out.Set("prefill", std::move(role));
  return out;
}

}  // namespace

Result<std::unique_ptr<Engine>> MakeEngine(StartedModel model, std::vector<int> cpus) {
  PINION_ASSIGN(const MakePrefillRole make_role, StartPrefillRole(model, cpus));
  return std::make_unique<EngineLoop>(std::move(model), std::move(cpus), make_role);
}

Result<std::unique_ptr<Engine>> Engine::Start(const EngineOptions& options) {
  std::vector<int> cpus = ThreadAffinity().value_or(std::vector<int>{});
  PINION_ASSIGN(StartedModel model, StartModel(options));
  return MakeEngine(std::move(model), std::move(cpus));
}

}  // namespace pinion
