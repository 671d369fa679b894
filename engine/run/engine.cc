#include "engine/run/engine.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/strings.h"
#include "engine/base/trace.h"
#include "engine/host/affinity.h"
#include "engine/run/constrained.h"
#include "engine/run/kv_ahead.h"
#include "engine/run/placement.h"
#include "engine/run/start.h"
#include "engine/run/step_work.h"
#include "engine/sample/random.h"

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

// None without a front end: a batch would pay for memory that it may never use.
KvAhead AheadOf(const StartedModel& model) {
  const EngineInfo& info = model.info;
  const uint64_t rank_bytes = info.kv_bytes / static_cast<uint64_t>(model.options.ranks());
  const size_t reserve =
      ReserveBlocks(info.blocks, rank_bytes, static_cast<size_t>(model.options.max_num_seqs));
  return {model.decoder->kv_pieces(), model.options.has_frontend ? reserve : 0};
}

class EngineLoop : public Engine {
 public:
  // `cpus`: those that this process had before its threads were pinned.
  EngineLoop(StartedModel model, std::vector<int> cpus)
      : model_(std::move(model)),
        table_(kernels::TableFor(model_.isa)),
        pool_(model_.info.blocks, model_.info.block_tokens, model_.options.prefix_caching),
        states_(static_cast<int32_t>(model_.options.max_num_seqs), model_.info.kept_states),
        scheduler_({static_cast<size_t>(model_.options.max_num_batched_tokens),
                    static_cast<size_t>(model_.options.max_num_seqs), model_.info.max_model_len,
                    BoundOfSteps(model_.options), model_.info.kv_reaches},
                   pool_, model_.step_times.get(), kMachineClock,
                   states_.total() > 0 ? &states_ : nullptr),
        ahead_(AheadOf(model_)),
        work_(model_.files.spec, model_.info),
        constrained_(GrammarVocabularyOf(model_.files), std::move(cpus)) {}

  const EngineInfo& info() const override { return model_.info; }
  const ModelFiles& model() const override { return model_.files; }
  bool idle() const override {
    return scheduler_.idle() && aborted_.empty() && constrained_.held() == 0;
  }
  void SetScoreSink(ScoreSink sink) override { score_sink_ = std::move(sink); }
  void DropPrefixCache() override {
    pool_.DropCached();
    states_.Drop();
  }

  EngineStats stats() const override {
    EngineStats stats;
    stats.scheduler = scheduler_.stats();
    stats.scheduler.waiting += constrained_.held();
    stats.kv = pool_.stats();
    stats.blocks_used = pool_.used();
    stats.blocks_total = pool_.total();
    stats.steps = steps_;
    stats.prompt_tokens = prompt_tokens_;
    stats.output_tokens = output_tokens_;
    stats.prefill = work_.prefill();
    stats.decode = work_.decode();
    stats.shared_kv_bytes = model_.decoder->shared_kv_bytes();
    for (int rank = 0; rank < model_.ranks->count(); ++rank)
      stats.waited_s.push_back(model_.ranks->waited_s(rank));
    if (model_.counted) stats.traffic = model_.counted->traffic();
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
    sequence->eos_ids = model_.files.spec.eos_ids;
    sequence->arrived_ns = NowNs();
    const uint64_t seed =
        request.params.seed.value_or(RequestSeed(model_.options.seed, request.id));
    if (!sequence->score)
      sequence->sampler.emplace(request.params, seed, sequence->eos_ids, sequence->tokens);
    sequence->params = std::move(request.params);
    if (request.grammar && !sequence->score)
      return constrained_.Hold(std::move(sequence), std::move(request.grammar));
    return scheduler_.Add(std::move(sequence));
  }

  void Abort(uint64_t request) override {
    auto sequence = scheduler_.Abort(request);
    if (!sequence) sequence = constrained_.Abort(request);
    if (!sequence) return;
    constrained_.End(sequence->mask_row);
    if (sequence->pool) model_.pooler->Drop(request);
    aborted_.push_back(MakeEvent(*sequence, NowNs()));
  }

  void Step(std::vector<TokenEvent>& events) override {
    const TraceSpan span("step", "number", steps_);
    for (TokenEvent& event : aborted_) events.push_back(std::move(event));
    aborted_.clear();
    if (constrained_.held() > 0) AddBegun(events);
    if (!scheduler_.idle()) TouchAhead(step_ns_ / kStepTouchPart, /*half=*/true);
    const int64_t start_ns = NowNs();
    const uint64_t prompt_tokens = prompt_tokens_;
    const auto counted = Counted();
    const std::vector<Slice>& slices = Schedule();
    if (slices.empty()) return;
    model_.decoder->Forward(
        batch_, [this](const Worker& worker, size_t first, size_t count, float* logits,
                       size_t stride) { Consume(worker, first, count, logits, stride); });
    ++steps_;
    work_.Add(slices, prompt_tokens_ - prompt_tokens, SecondsSince(start_ns), counted, Counted());
    Commit(slices, events);
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

  StepWorkMeter::Counted Counted() const {
    return {model_.decoder->expert_bytes_read(), model_.decoder->shared_kv_bytes()};
  }

  // The purpose of a row of logits: the next token of a sequence, or the score of a position.
  struct LogitUse {
    Sequence* sequence;
    size_t position;
    bool sample;
    SampledToken token;
    bool failed = false;  // its grammar has no mask: the token is none of it
  };

  // The rows of a slice that need logits: the last row to sample from; every row of a prompt that
  // is rated, or those that are pooled, except those that were handed on before a preemption.
  Pooler::Rows Wanted(const Slice& slice) const {
    const Sequence& sequence = *slice.sequence;
    const size_t sampled = slice.count - (slice.samples ? 1 : 0);
    const size_t done = sequence.scored > slice.first ? sequence.scored - slice.first : 0;
    if (sequence.pool) {
      const Pooler::Rows rows = model_.pooler->Wanted(sequence.tokens.size());
      const auto within = [&](size_t row) {
        return std::min(slice.count, row - std::min(row, slice.first));
      };
      return {std::max(done, within(rows.first)), within(rows.last)};
    }
    const bool rated = sequence.params.prompt_logprobs >= 0 || (sequence.score && score_sink_);
    if (!rated) return {sampled, slice.count};
    return {std::min(sampled, done), slice.count};
  }

  // Whether a row says how likely the prompt's next token was.
  static bool Rates(const LogitUse& use) {
    return !use.sample && use.sequence->params.prompt_logprobs >= 0 &&
           use.position + 1 < use.sequence->prompt_tokens;
  }

  const std::vector<Slice>& Schedule() {
    const TraceSpan span("schedule");
    const std::vector<Slice>& slices = scheduler_.Schedule();
    FillBatch(slices);
    return slices;
  }

  Json StepTimesJson() const;

  // Touches KV memory ahead of its use for about so long, but at least a piece for every thread;
  // false: there is none left to touch.
  bool TouchAhead(int64_t ns, bool half) {
    const int64_t began_ns = NowNs();
    const auto most = static_cast<size_t>(model_.ranks->threads(0));
    do {
      const KvAhead::Range pieces = ahead_.Next(pool_.reached(), std::max<size_t>(1, most), half);
      if (pieces.empty()) return false;
      const TraceSpan span("touch kv", "pieces", pieces.last - pieces.first);
      model_.decoder->TouchKv(pieces.first, pieces.last);
    } while (NowNs() - began_ns < ns);
    return true;
  }

  void FillBatch(const std::vector<Slice>& slices) {
    batch_.Clear();
    uses_.clear();
    for (const Slice& slice : slices) {
      Sequence& sequence = *slice.sequence;
      const size_t row = batch_.tokens.size();
      StepBatch::Slice& in_batch = batch_.slices.emplace_back(StepBatch::Slice{
          row, slice.count, slice.first, {}, sequence.place, slice.begins_from, slice.keeps_in});
      for (size_t table = 0; table < sequence.tables.size(); ++table)
        in_batch.block_tables[table] = sequence.tables[table].blocks.data();
      const auto from = sequence.tokens.begin() + static_cast<ptrdiff_t>(slice.first);
      batch_.tokens.insert(batch_.tokens.end(), from, from + static_cast<ptrdiff_t>(slice.count));
      AddTypes(slice);
      const Pooler::Rows wanted = Wanted(slice);
      for (size_t i = wanted.first; i < wanted.last; ++i) {
        batch_.logit_rows.push_back(static_cast<int32_t>(row + i));
        uses_.push_back({&sequence, slice.first + i, slice.samples && i + 1 == slice.count, {}});
      }
      // Recomputation after a preemption does not count as new prompt tokens.
      if (sequence.preemptions == 0 && slice.first < sequence.prompt_tokens)
        prompt_tokens_ += std::min(slice.count, sequence.prompt_tokens - slice.first);
    }
  }

  void AddTypes(const Slice& slice) {
    if (model_.files.spec.token_types == 0) return;
    const std::vector<int32_t>& types = slice.sequence->types;
    for (size_t i = slice.first; i < slice.first + slice.count; ++i)
      batch_.types.push_back(types.empty() ? 0 : types[i]);
  }

  // The threads of rank 0 share the sampling; only the thread that called Step hands on scores, so
  // that the sink sees positions in order and needs no lock.
  void Consume(const Worker& worker, size_t first, size_t count, float* logits, size_t stride) {
    const TraceSpan span("sample");
    const auto vocabulary = static_cast<size_t>(model_.files.spec.output_width());
    worker.ShareOneByOne(count, [&](size_t i) {
      LogitUse& use = uses_[first + i];
      Sequence& sequence = *use.sequence;
      const std::span<float> row(logits + i * stride, vocabulary);
      if (use.sample)
        Sample(use, row);
      else if (Rates(use))
        use.token = RateToken(table_, row, sequence.tokens[use.position + 1],
                              sequence.params.prompt_logprobs);
    });
    if (worker.thread != 0) return;
    for (size_t i = 0; i < count; ++i) {
      const LogitUse& use = uses_[first + i];
      if (use.sequence->pool)
        model_.pooler->Take(use.sequence->id, use.position, logits + i * stride, vocabulary);
      else if (use.sequence->score && score_sink_)
        score_sink_(use.sequence->id, use.position, logits + i * stride, vocabulary);
    }
  }

  void Sample(LogitUse& use, std::span<float> row) {
    std::span<const uint32_t> mask;
    if (use.sequence->mask_row >= 0) {
      mask = constrained_.Await(*use.sequence);
      use.failed = mask.empty();
    }
    use.token = use.sequence->sampler->Sample(table_, row, mask);
  }

  // Hands the scheduler the sequences whose grammars have been read.
  void AddBegun(std::vector<TokenEvent>& events) {
    for (auto& [sequence, error] : constrained_.TakeBegun(/*waits=*/scheduler_.idle())) {
      TokenEvent event = MakeEvent(*sequence, NowNs());
      const int32_t row = sequence->mask_row;
      event.error = std::move(error);
      if (event.error.empty()) {
        auto added = scheduler_.Add(std::move(sequence));
        if (added) continue;
        event.error = added.error().message;
      }
      constrained_.End(row);
      event.finish = FinishReason::kAborted;
      events.push_back(std::move(event));
    }
  }

  // Moves grammars on by the step's tokens, and ends the sequences whose grammar has no mask.
  // `events`: of the step, one for each sequence with a use.
  void AdvanceGrammars(std::span<TokenEvent> events) {
    bool any = false;
    for (const LogitUse& use : uses_) {
      if (!use.sample || use.sequence->mask_row < 0) continue;
      any = true;
      if (use.failed)
        GiveUp(*use.sequence, events);
      else if (use.sequence->finish != FinishReason::kNone)
        constrained_.End(use.sequence->mask_row);
      else
        constrained_.Take(*use.sequence);
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
    if (sequence.finish == FinishReason::kNone) scheduler_.Abort(sequence.id);
    constrained_.End(row);
  }

  // Adds to a sequence's event of this step what came of a row.
  static void TakeUse(LogitUse& use, TokenEvent& event) {
    if (!use.sample) return event.rated_prompt.push_back(std::move(use.token));
    event.first_token_ns = use.sequence->first_token_ns;
    event.has_token = true;
    event.token = std::move(use.token);
    ++event.output_tokens;
  }

  // The scheduler's Commit invalidates the slices of finished sequences, so events are created
  // before it, while every sequence is alive, and get their finish reason after it.
  void Commit(const std::vector<Slice>& slices, std::vector<TokenEvent>& events) {
    const TraceSpan span("commit");
    const int64_t now = NowNs();
    std::vector<int32_t> sampled;
    std::vector<Sequence*> emitting;
    const size_t first_event = events.size();
    for (LogitUse& use : uses_) {
      if (!use.sample && !Rates(use)) continue;
      if (use.sample && use.sequence->first_token_ns == 0) use.sequence->first_token_ns = now;
      if (emitting.empty() || emitting.back() != use.sequence) {
        emitting.push_back(use.sequence);
        events.push_back(MakeEvent(*use.sequence, now));
      }
      TakeUse(use, events.back());
      if (use.sample) sampled.push_back(events.back().token.id);
    }
    output_tokens_ += sampled.size();
    const auto all_finished = scheduler_.Commit(sampled);
    for (const auto& finished : all_finished) {
      const auto at = std::find(emitting.begin(), emitting.end(), finished.get());
      if (at != emitting.end())
        events[first_event + static_cast<size_t>(at - emitting.begin())].finish = finished->finish;
      else
        events.push_back(MakeEvent(*finished, now));
      if (finished->pool)
        events.back().pooled = model_.pooler->Finish(finished->id, finished->tokens.size());
    }
    AdvanceGrammars(std::span(events).subspan(first_event));
  }

  StartedModel model_;
  const kernels::Table& table_;
  BlockPool pool_;
  StatePool states_;
  Scheduler scheduler_;
  KvAhead ahead_;
  int64_t step_ns_ = 0;  // that the last step took
  StepWorkMeter work_;
  Constrained constrained_;
  ScoreSink score_sink_;
  StepBatch batch_;
  std::vector<LogitUse> uses_;
  std::vector<TokenEvent> aborted_;
  uint64_t steps_ = 0, prompt_tokens_ = 0, output_tokens_ = 0;
};

Json EngineLoop::StepTimesJson() const {
  const SchedulerStats stats = scheduler_.stats();
  Json out = model_.step_times->ToJson();
  out.Set("bound_seconds", stats.bound_s);
  out.Set("steps_over_bound", stats.steps_over_bound);
  return out;
}

Json EngineLoop::ServerInfo() const {
  const EngineInfo& info = model_.info;
  Json kv = Json::MakeObject();
  kv.Set("dtype", kernels::Name(info.kv_dtype));
  kv.Set("bytes", info.kv_bytes);
  kv.Set("block_tokens", static_cast<uint64_t>(info.block_tokens));
  kv.Set("blocks", static_cast<uint64_t>(info.blocks));
  kv.Set("tokens", static_cast<uint64_t>(info.kv_tokens));
  kv.Set("state_bytes", info.state_bytes);
  kv.Set("kept_states", static_cast<uint64_t>(info.kept_states));
  Json out = Json::MakeObject();
  out.Set("options", ToJson(model_.options));
  out.Set("task", Name(info.task));
  out.Set("plan", ToJson(info.plan));
  out.Set("isa", info.isa);
  out.Set("gemm", info.gemm);
  out.Set("dtype", info.dtype);
  out.Set("threads", info.threads);
  out.Set("processes", static_cast<uint64_t>(info.processes));
  if (info.link) out.Set("link", ToJson(*info.link));
  out.Set("max_model_len", static_cast<uint64_t>(info.max_model_len));
  out.Set("load_s", info.load_s);
  out.Set("weight_bytes", info.weight_bytes);
  out.Set("kv_cache", std::move(kv));
  out.Set("placement", PlacementOf(model_));
  if (model_.step_times) out.Set("step_times", StepTimesJson());
  out.Set("allocator", info.allocator);
  out.Set("openmp", info.openmp);
  out.Set("stages", info.stages);
  return out;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::Start(const EngineOptions& options) {
  std::vector<int> cpus = ThreadAffinity().value_or(std::vector<int>{});
  PINION_ASSIGN(StartedModel model, StartModel(options));
  return std::make_unique<EngineLoop>(std::move(model), std::move(cpus));
}

}  // namespace pinion
