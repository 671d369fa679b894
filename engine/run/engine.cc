#include "engine/run/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/ring.h"
#include "engine/base/strings.h"
#include "engine/base/trace.h"
#include "engine/host/affinity.h"
#include "engine/run/constrained.h"
#include "engine/run/not_finite.h"
#include "engine/run/prefill_role.h"
#include "engine/run/sequence_of.h"
#include "engine/run/server_info.h"
#include "engine/run/start.h"
#include "engine/run/step_layout.h"
#include "engine/run/step_work.h"

namespace pinion {
namespace {

// How a sequence ends, if it does.
void SetEnd(const Sequence& sequence, TokenEvent& event) {
  event.finish = sequence.finish;
  if (sequence.finish == FinishReason::kNone || sequence.failure.empty()) return;
  event.finish = FinishReason::kAborted;
  event.error = sequence.failure;
}

TokenEvent MakeEvent(const Sequence& sequence, int64_t now_ns) {
  TokenEvent event;
  event.request = sequence.id;
  SetEnd(sequence, event);
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
        open_(model_.steps_in_flight()),
        scheduler_(
            {static_cast<size_t>(model_.options.max_num_batched_tokens),
             static_cast<size_t>(model_.options.max_num_seqs), model_.info.max_model_len,
             BoundOfSteps(model_.options, open_.most()), model_.info.kv_reaches, open_.most()},
            pool_, model_.step_times.get(), *model_.clock,
            states_.total() > 0 ? &states_ : nullptr),
        layout_(model_.files.spec, model_.pooler.get(), model_.cut, open_.most(),
                model_.options.seed),
        work_(model_.files.spec, model_.formats, model_.info),
        constrained_(GrammarVocabularyOf(model_.files), std::move(cpus)),
        role_(make_role({pool_, model_.info.kv_reaches, states_.total() > 0 ? &states_ : nullptr,
                         scheduler_, *model_.executor, model_.files.spec.vocabulary,
                         [this](uint64_t id) { Abort(id); }})) {}
  ~EngineLoop() override {
    NoCaller nobody;
    for (; !open_.empty(); open_.Pop()) model_.executor->Finish(nobody);
  }

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
    CHECK((request.id & PrefillRole::kOwnIds) == 0) << request.id;
    std::shared_ptr<const Grammar> grammar = request.score ? nullptr : request.grammar;
    PINION_ASSIGN(auto sequence, SequenceOf(std::move(request), model_));
    if (grammar) return constrained_.Hold(std::move(sequence), std::move(grammar));
    return Admit(std::move(sequence));
  }

  void Abort(uint64_t request) override {
    auto sequence = scheduler_.Abort(request);
    if (!sequence) sequence = constrained_.Abort(request);
    if (!sequence) sequence = role_->Abort(request);
    if (!sequence) return;
    Forget(*sequence);
    if (!role_->Owns(request)) aborted_.push_back(MakeEvent(*sequence, NowNs()));
  }

  void Step(std::vector<TokenEvent>& events) override {
    const TraceSpan span("step", "number", steps_);
    for (TokenEvent& event : aborted_) events.push_back(std::move(event));
    aborted_.clear();
    if (constrained_.held() > 0) AddBegun(events);
    role_->BeforeStep(scheduler_.idle() ? kIdleTakeNs : step_ns_ / kStepTakePart);
    if (!scheduler_.idle()) TouchAhead(step_ns_ / kStepTouchPart, /*half=*/true);
    while (!open_.full() && Begin()) {
    }
    if (!open_.empty()) Finish(events);
  }

  bool Prepare() override { return TouchAhead(kIdleTouchNs, /*half=*/false); }

 private:
  bool HasOwnWork() const {
    return !scheduler_.idle() || !aborted_.empty() || constrained_.held() > 0;
  }

  // Lets a sequence that can run wait for its turn, or for another engine to compute its prompt.
  Status Admit(std::unique_ptr<Sequence> sequence) {
    PINION_TRY(scheduler_.Check(*sequence));
    if (role_->Keep(sequence)) return {};
    return scheduler_.Add(std::move(sequence));
  }

  // False: there is nothing to compute until an earlier step has ended.
  bool Begin() {
    const StepMark now = Mark();
    const std::vector<Slice>& slices = Schedule();
    if (slices.empty()) return false;
    OpenStep& step = open_.newest();
    step.since = now;
    step.slices = &slices;
    step.prompt_tokens = PromptTokensOf(slices);
    model_.executor->Begin(step.laid.input);
    return true;
  }

  const std::vector<Slice>& Schedule() {
    const TraceSpan span("schedule");
    const std::vector<Slice>& slices = scheduler_.Schedule();
    if (slices.empty()) return slices;
    LaidStep& laid = open_.Push().laid;
    layout_.Lay(slices, score_sink_ != nullptr, laid);
    scheduler_.CutNewest(laid.input.parts);
    return slices;
  }

  void Finish(std::vector<TokenEvent>& events) {
    const OpenStep& step = open_.oldest();
    laid_ = &step.laid;
    StepOutput output = model_.executor->Finish(*this);
    CHECK(output.tokens.size() == step.laid.wanted().size()) << output.tokens.size() << " tokens";
    ++steps_;
    const StepMark end = Mark();
    work_.Add(*step.slices, step.prompt_tokens, step.since, end);
    prompt_tokens_ += step.prompt_tokens;
    Commit(std::move(output.tokens), events);
    step_ns_ = model_.clock->NowNs() - step.since.ns;
    open_.Pop();
    if (!open_.empty()) open_.oldest().since = end;
  }

  StepMark Mark() const {
    return {model_.clock->NowNs(), model_.executor->reads(), ExchangedSoFar()};
  }
  Traffic ExchangedSoFar() const { return model_.counted ? model_.counted->traffic() : Traffic{}; }

  // Makes KV memory ready ahead of its use for about so long, but at least a piece for every
  // thread; false: there is none left, or a step is in flight.
  bool TouchAhead(int64_t ns, bool half) {
    const int64_t began_ns = NowNs();
    do {
      if (!open_.empty() || !model_.executor->AheadOfUse(pool_.reached(), half)) return false;
      model_.executor->PrepareKv(pool_.reached(), half);
    } while (NowNs() - began_ns < ns);
    return true;
  }

  // Drops what layout, grammars and pooler keep of a sequence that has ended.
  void Forget(const Sequence& sequence) {
    layout_.End(sequence);
    constrained_.End(sequence.mask_row);
    if (sequence.pool) model_.pooler->Drop(sequence.id);
  }

  std::span<const uint32_t> Mask(size_t wanted) override {
    return constrained_.Await(laid_->sequence(wanted));
  }

  void Take(size_t wanted, const float* row, size_t width) override {
    const Sequence& sequence = laid_->sequence(wanted);
    if (sequence.aborted) return;
    if (sequence.pool)
      model_.pooler->Take(sequence.id, laid_->position(wanted), row, width);
    else if (score_sink_)
      score_sink_(sequence.id, laid_->position(wanted), row, width);
  }

  void Written(std::span<const size_t> image_bytes) override {
    role_->DuringStep(*open_.oldest().slices, image_bytes);
  }

  // Hands the scheduler the sequences whose grammars have been read.
  void AddBegun(std::vector<TokenEvent>& events) {
    for (auto& [sequence, error] : constrained_.TakeReady(/*waits=*/scheduler_.idle())) {
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

  // Moves grammars on by the step's tokens.
  void AdvanceGrammars() {
    for (size_t i = 0; i < laid_->wanted().size(); ++i)
      if (laid_->wanted()[i].constrained && laid_->sequence(i).finish == FinishReason::kNone)
        constrained_.Take(laid_->sequence(i));
  }

  // Notes why sequences are given up of whose rows no token came; returns those that the step would
  // not end, since it chose no token of them.
  std::vector<uint64_t> NoteFailures(std::span<const SampledToken> tokens) {
    std::vector<uint64_t> unended;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const RowUse use = laid_->wanted()[i].use;
      Sequence& sequence = laid_->sequence(i);
      if (use == RowUse::kItself || tokens[i].id >= 0 || sequence.aborted) continue;
      if (use == RowUse::kRating && sequence.failure.empty()) unended.push_back(sequence.id);
      sequence.failure = tokens[i].id == SampledToken::kNoMask
                             ? constrained_.failure(sequence)
                             : NotFinite("the logits are", model_.info.dtype);
    }
    return unended;
  }

  // Ends sequences that are given up before a token of them is chosen. One that is in flight ends
  // with its last step.
  void EndFailed(std::span<const uint64_t> sequences, int64_t now,
                 std::vector<TokenEvent>& events) {
    for (const uint64_t id : sequences) {
      const auto ended = scheduler_.Abort(id);
      if (!ended) continue;
      events.push_back(MakeEvent(*ended, now));
      Forget(*ended);
    }
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
      const WantedRow& wanted = laid_->wanted()[i];
      Sequence& sequence = laid_->sequence(i);
      if (wanted.use == RowUse::kItself || sequence.aborted || !sequence.failure.empty()) continue;
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

  // The tokens of the step for the scheduler, -1 of sequences that are given up; sets `following`.
  std::vector<int32_t> ChosenOf(std::span<const SampledToken> tokens) {
    std::vector<int32_t> chosen;
    following_.clear();
    for (size_t i = 0; i < tokens.size(); ++i) {
      const WantedRow& wanted = laid_->wanted()[i];
      const Sequence& sequence = laid_->sequence(i);
      if (wanted.use != RowUse::kToken) continue;
      chosen.push_back(sequence.failure.empty() ? tokens[i].id : -1);
      if (chosen.back() < 0) continue;
      if (wanted.constrained) {
        following_.resize(chosen.size());
        following_.back() = constrained_.Following(sequence, tokens[i].id);
      }
      if (!role_->Owns(sequence.id)) ++output_tokens_;
    }
    if (!following_.empty()) following_.resize(chosen.size());
    return chosen;
  }

  // Sets the pooled vector of a sequence that has ended, or the error if it is not finite.
  void Pool(const Sequence& sequence, TokenEvent& event) {
    event.pooled = model_.pooler->Finish(sequence.id, sequence.tokens.size());
    if (std::all_of(event.pooled.begin(), event.pooled.end(),
                    [](float value) { return std::isfinite(value); }))
      return;
    event.pooled.clear();
    event.finish = FinishReason::kAborted;
    event.error = NotFinite(
        model_.info.task == ModelTask::kEmbed ? "the embedding is" : "the text's scores are",
        model_.info.dtype);
  }

  // The scheduler's Commit ends sequences, so events are made before it and get their finish reason
  // after it.
  void Commit(std::vector<SampledToken> tokens, std::vector<TokenEvent>& events) {
    const TraceSpan span("commit");
    const int64_t now = NowNs();
    const std::vector<uint64_t> unended = NoteFailures(tokens);
    const std::vector<int32_t> chosen = ChosenOf(tokens);
    std::vector<const Sequence*> emitting;
    const size_t first_event = events.size();
    Emit(std::move(tokens), now, events, emitting);
    const auto all_finished = scheduler_.Commit(chosen, following_);
    std::vector<size_t> last_events;  // of those that are emitting
    for (size_t i = 0; i < emitting.size(); ++i) {
      const Sequence& sequence = *emitting[i];
      last_events.push_back(first_event + i);
      if (!events[first_event + i].has_token || sequence.jumped == 0) continue;
      EmitJumped(sequence, now, events);
      last_events.back() = events.size() - 1;
    }
    for (const auto& finished : all_finished) {
      const auto at = std::find(emitting.begin(), emitting.end(), finished.get());
      if (at != emitting.end())
        SetEnd(*finished, events[last_events[static_cast<size_t>(at - emitting.begin())]]);
      else
        events.push_back(MakeEvent(*finished, now));
      if (finished->pool && !finished->aborted) Pool(*finished, events.back());
    }
    AdvanceGrammars();
    for (const auto& finished : all_finished) Forget(*finished);
    EndFailed(unended, now, events);
    constrained_.SendTaken();
    role_->AfterStep(all_finished);
    const auto first = events.begin() + static_cast<ptrdiff_t>(first_event);
    events.erase(std::remove_if(first, events.end(),
                                [this](const TokenEvent& one) { return role_->Owns(one.request); }),
                 events.end());
  }

  // A step that the executor computes.
  struct OpenStep {
    StepMark since;  // it has been the next to end, or the first
    const std::vector<Slice>* slices = nullptr;
    uint64_t prompt_tokens = 0;
    LaidStep laid;
  };

  StartedModel model_;
  BlockPool pool_;
  StatePool states_;
  Ring<OpenStep> open_;
  Scheduler scheduler_;
  StepLayout layout_;
  const LaidStep* laid_ = nullptr;  // the step that ends
  int64_t step_ns_ = 0;             // that the last step took
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
