#include "harness/sweep/sweep.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/base/strings.h"
#include "engine/model/model.h"
#include "engine/run/start.h"
#include "harness/engines/command.h"
#include "harness/sweep/assemble.h"
#include "harness/sweep/folder.h"
#include "harness/sweep/load.h"
#include "harness/sweep/schedule.h"
#include "harness/trial/runner.h"

namespace pinion::harness {
namespace {

// A child that lives for so many trial limits hangs, once its weights could be loaded from a slow
// disk: a disturbed machine must fit in.
constexpr double kHangLimits = 5, kSlowDiskBytesPerS = 50e6;

std::string ShortHash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  char hex[20];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(hash));
  return hex;
}

Json BudgetJson(const Budget& budget) {
  Json object = Json::MakeObject();
  object.Set("cpus", Json(budget.cpus));
  object.Set("cpu_quota", budget.cpu_quota ? Json(*budget.cpu_quota) : Json());
  object.Set("max_threads", budget.max_threads);
  object.Set("memory_total_bytes", budget.memory_total_bytes);
  object.Set("reasons", Json(budget.reasons));
  return object;
}

// Another engine's model may be one that Pinion does not read: nothing is then known of it.
Result<DecoderSpec> SpecOf(const std::string& model, const EngineChoice& engine) {
  auto files = FindModel(model);
  if (files) return files->spec;
  if (engine.is_pinion()) return Unexpected(std::move(files).error());
  return DecoderSpec();
}

// What no candidate could be started with is better said before anything is.
Status CheckStartable(const EngineChoice& engine, const EngineOptions& base, const Host& host) {
  if (engine.is_pinion()) return {};
  PINION_ASSIGN(const Plan plan, PlanFor(base, host.machine, host.budget));
  PINION_TRY(CommandFor(engine, base, plan, host.machine, 0));
  return {};
}

Json ModelFacts(const DecoderSpec& spec) {
  const uint64_t element_bytes = spec.checkpoint_dtype == "float32" ? 4 : 2;
  Json facts = Json::MakeObject();
  facts.Set("architecture", spec.architecture);
  facts.Set("parameters", ParameterCount(spec));
  facts.Set("weight_bytes", ParameterCount(spec) * element_bytes);
  facts.Set("kv_bytes_per_token", KvBytesPerToken(spec, element_bytes));
  return facts;
}

// The experiment itself, on a store that is open and a folder that is held.
class Sweep {
 public:
  Sweep(const SweepRequest& request, const SweepMeta& meta, Store& store, Progress& progress)
      : request_(request),
        meta_(meta),
        definition_(meta.definition),
        store_(store),
        progress_(progress) {}

  Result<SweepEnd> Run() {
    PINION_ASSIGN(candidates_, store_.Candidates());
    PINION_ASSIGN(trials_, store_.Trials());
    for (const CandidateRow& row : candidates_)
      if (!row.infeasible.empty())
        progress_.Note(StrCat("left out: ", row.label, ": ", row.infeasible));
    PINION_TRY(SetTrialLimit());
    PINION_TRY(Save(false));
    PINION_TRY(RunRounds());
    if (end_ == SweepEnd::kDone) PINION_TRY(Confirm());
    PINION_TRY(Save(end_ != SweepEnd::kInterrupted));
    return end_;
  }

 private:
  std::vector<int> Alive() const {
    std::vector<int> alive;
    for (const CandidateRow& row : candidates_)
      if (row.infeasible.empty() && !HasFailed(trials_, row.id)) alive.push_back(row.id);
    return alive;
  }

  // Kept from the start on: a resume with another budget must not change what a trial is.
  Status SetTrialLimit() {
    PINION_ASSIGN(const std::optional<Json> stored, store_.Meta("trial_limit_s"));
    trial_limit_s_ = stored ? stored->number() : TrialLimitSeconds(definition_, Alive().size() + 1);
    return store_.SetMeta("trial_limit_s", trial_limit_s_);
  }

  double HangSeconds() const {
    const Json* weight_bytes = meta_.model_facts.Find("weight_bytes");
    return kHangLimits * trial_limit_s_ +
           (weight_bytes ? weight_bytes->number() / kSlowDiskBytesPerS : 0) +
           (definition_.engine.is_pinion() ? 0 : definition_.engine.start_timeout_s);
  }

  Status Save(bool finished) { return WriteProgress(store_, {NowIso8601(), planned_, finished}); }

  Status RunRounds() {
    const int wanted = definition_.rounds;
    planned_ = wanted;
    for (int round = 1; round <= planned_ && end_ == SweepEnd::kDone; ++round) {
      std::vector<int> everyone;
      for (const CandidateRow& row : candidates_)
        if (row.infeasible.empty()) everyone.push_back(row.id);
      const auto before = trials_.size();
      PINION_TRY(RunRound(RoundOrder(everyone, definition_.seed, round, false), round, false));
      if (end_ != SweepEnd::kDone) return {};
      planned_ = std::max(round, Plan().rounds);
      if (trials_.size() > before) TellPlan(round);
      PINION_TRY(Save(false));
    }
    // What the budget did not allow for is not done, but it is all there will be.
    if (planned_ < wanted && end_ == SweepEnd::kDone) end_ = SweepEnd::kBudget;
    return {};
  }

  RoundPlan Plan() const {
    return PlanRounds(trials_, Alive().size() + 1, RoundsDone(candidates_, trials_, false),
                      definition_.rounds, definition_.budget_s);
  }

  void TellPlan(int round) {
    if (round == 1) {
      const RoundPlan plan = Plan();
      std::string text = StrCat("a round takes ", FormatLeft(plan.round_s), ": ", planned_, " of ",
                                definition_.rounds, " rounds fit the budget of ",
                                FormatLeft(definition_.budget_s));
      if (definition_.rounds < static_cast<int>(kMinSamples)) {
        text += StrCat("; a verdict needs ", kMinSamples, ": raise --rounds");
      } else if (!plan.enough) {
        text += StrCat("; a verdict needs ", kMinSamples, ": raise --budget to ",
                       FormatLeft(plan.enough_s));
      }
      progress_.Note(text);
    }
    if (round == 3) TellFloors();  // two runs of the anchor say nothing before
  }

  void TellFloors() {
    for (Objective objective : definition_.objectives) {
      const VerdictInput input = InputFor(objective, definition_, candidates_, trials_);
      const double floor =
          NoiseFloor(input.anchor_log_ratios, static_cast<size_t>(std::max(planned_, 1)));
      char percent[32];
      std::snprintf(percent, sizeof percent, "%.1f %%", floor * 100);
      progress_.Note(StrCat(Name(objective), ": after ", planned_,
                            " rounds, differences below about ", percent,
                            " cannot be resolved here"));
    }
  }

  // Fresh rounds of the winners so far and the anchor, where the budget has room for enough of
  // them.
  Status Confirm() {
    std::vector<int> contestants = {0};
    for (Objective objective : definition_.objectives) {
      VerdictInput input = InputFor(objective, definition_, candidates_, trials_);
      for (PairedSeries& series : input.contestants) series.confirmation.clear();
      if (Decide(input).outcome != Outcome::kWinner) continue;
      const int chosen = *Choose(input);
      if (std::find(contestants.begin(), contestants.end(), chosen) == contestants.end())
        contestants.push_back(chosen);
    }
    if (contestants.size() == 1) return {};
    const int rounds = static_cast<int>(kMinSamples);
    const RoundPlan plan =
        PlanRounds(trials_, contestants.size() + 1, RoundsDone(candidates_, trials_, true), rounds,
                   definition_.budget_s);
    if (plan.rounds < rounds) {
      progress_.Note("no room in the budget to confirm the winners in fresh rounds");
      return {};
    }
    progress_.Note(StrCat("confirming ", contestants.size() - 1, " of the candidates in ", rounds,
                          " fresh rounds"));
    for (int round = 1; round <= rounds && end_ == SweepEnd::kDone; ++round)
      PINION_TRY(RunRound(RoundOrder(contestants, definition_.seed, round, true), round, true));
    return {};
  }

  bool IsDone(const Slot& slot, int round, bool confirmation) const {
    return std::any_of(trials_.begin(), trials_.end(), [&](const TrialRow& trial) {
      return trial.candidate == slot.candidate && trial.copy == slot.copy && trial.round == round &&
             trial.confirmation == confirmation;
    });
  }

  Status RunRound(const std::vector<Slot>& order, int round, bool confirmation) {
    for (size_t i = 0; i < order.size(); ++i) {
      if (IsDone(order[i], round, confirmation) || HasFailed(trials_, order[i].candidate)) continue;
      if (request_.interrupted()) {
        end_ = SweepEnd::kInterrupted;
        return {};
      }
      if (!FitsBudget()) {
        end_ = SweepEnd::kBudget;
        return {};
      }
      PINION_TRY(RunSlot(order[i], round, confirmation, i, order.size()));
      if (end_ != SweepEnd::kDone) return {};
    }
    return {};
  }

  // Another trial of the usual length ends at most 5 % over the budget.
  bool FitsBudget() const {
    double spent_s = 0;
    for (const TrialRow& trial : trials_) spent_s += trial.seconds;
    return trials_.empty() || spent_s + MeanTrialSeconds(trials_) <= 1.05 * definition_.budget_s;
  }

  Result<TrialRequest> RequestFor(const CandidateRow& row, uint64_t seed) const {
    TrialRequest request;
    request.engine = definition_.engine;
    PINION_TRY(FromJson(row.options, request.options));
    request.workload = definition_.workload;
    request.seed = seed;
    request.limit_s = trial_limit_s_;
    return request;
  }

  const CandidateRow& RowOf(int id) const {
    return *std::find_if(candidates_.begin(), candidates_.end(),
                         [&](const CandidateRow& row) { return row.id == id; });
  }

  Status RunSlot(const Slot& slot, int round, bool confirmation, size_t index, size_t count) {
    const CandidateRow& row = RowOf(slot.candidate);
    const uint64_t seed = RoundSeed(definition_.seed, round, confirmation);
    TrialRow trial;
    trial.candidate = slot.candidate;
    trial.copy = slot.copy;
    trial.round = round;
    trial.confirmation = confirmation;
    trial.position = static_cast<int>(index);
    trial.started_at = NowIso8601();
    trial.log_path = StrCat("logs/", confirmation ? "confirm" : "round", round, "-candidate",
                            slot.candidate, slot.copy ? "-again" : "", ".log");
    const ProgressLine line = LineFor(trial, row, count);
    progress_.Begin(line);
    PINION_ASSIGN(const TrialRequest request, RequestFor(row, seed));
    PINION_ASSIGN(const TrialOutcome outcome,
                  RunTrialProcess(request, {request_.binary, request_.folder + "/" + trial.log_path,
                                            HangSeconds(), request_.interrupted}));
    if (outcome.interrupted) {
      end_ = SweepEnd::kInterrupted;
      return {};
    }
    Take(outcome, trial);
    PINION_TRY(store_.PutTrial(
        trial, {ShortHash(meta_.machine.Dump()), meta_.model, row.options.Dump(), seed}));
    trials_.push_back(trial);
    progress_.End(line, trial.ok, Summary(trial));
    return CheckAnchor(trial);
  }

  ProgressLine LineFor(const TrialRow& trial, const CandidateRow& row, size_t count) const {
    const double mean_s = MeanTrialSeconds(trials_);
    const auto left = static_cast<double>(count) - trial.position +
                      (trial.confirmation ? static_cast<double>(kMinSamples) : planned_) *
                          static_cast<double>(count) -
                      static_cast<double>(trial.round) * static_cast<double>(count);
    return {trial.round,
            trial.confirmation ? static_cast<int>(kMinSamples) : planned_,
            trial.confirmation,
            trial.position + 1,
            static_cast<int>(count),
            row.label,
            left * mean_s};
  }

  static void Take(const TrialOutcome& outcome, TrialRow& trial) {
    trial.ok = outcome.ok;
    trial.reason = outcome.reason;
    trial.log_tail = outcome.log_tail;
    trial.seconds = outcome.seconds;
    trial.samples = outcome.result.samples;
    trial.suspect = outcome.result.suspect;
    trial.output_hash = outcome.result.output_hash;
    trial.info = outcome.result.info;
  }

  std::string Summary(const TrialRow& trial) const {
    if (!trial.ok) return trial.reason;
    char text[96];
    const auto log_rate = LogScore(trial, Objective::kThroughput, definition_.workload.output_len);
    std::snprintf(text, sizeof text, "%.1f s, %.4g tokens/s%s", trial.seconds,
                  log_rate ? std::exp(*log_rate) : 0.0, trial.suspect.empty() ? "" : ", disturbed");
    return text;
  }

  // Without the anchor there is nothing to compare with.
  Status CheckAnchor(const TrialRow& trial) const {
    if (trial.candidate != 0 || !HasFailed(trials_, 0)) return {};
    return Fail(ErrorCode::kFailed,
                StrCat("the default configuration failed ", kMaxFailures, " times in a row (",
                       trial.reason, "); see ", request_.folder, "/", trial.log_path));
  }

  const SweepRequest& request_;
  const SweepMeta& meta_;
  const Definition& definition_;
  Store& store_;
  Progress& progress_;
  std::vector<CandidateRow> candidates_;
  std::vector<TrialRow> trials_;
  int planned_ = 0;
  double trial_limit_s_ = 0;
  SweepEnd end_ = SweepEnd::kDone;
};

Result<std::vector<CandidateRow>> NewCandidates(const SweepMeta& meta) {
  PINION_ASSIGN(const Host host, Host::This());
  PINION_ASSIGN(const DecoderSpec spec, SpecOf(meta.model, meta.definition.engine));
  PINION_ASSIGN(const std::vector<Point> points, Expand(meta.definition, meta.base, host, spec));
  std::vector<CandidateRow> rows;
  for (const Point& point : points) rows.push_back(RowOf(point, static_cast<int>(rows.size())));
  return rows;
}

Result<SweepEnd> StartSweep(const SweepRequest& request, Progress& progress) {
  if (HoldsSweep(request.folder))
    return Fail(ErrorCode::kUsage, StrCat(request.folder,
                                          " holds a sweep already; go on with "
                                          "--resume, or take another --out"));
  // Before anything is written: what cannot run at all leaves no folder behind.
  PINION_ASSIGN(const std::vector<CandidateRow> rows, NewCandidates(request.meta));
  PINION_ASSIGN(const auto folder, SweepFolder::Hold(request.folder));
  PINION_ASSIGN(const auto store, Store::Open(folder->Database(), Store::Mode::kCreate));
  PINION_TRY(WriteMeta(*store, request.meta));
  PINION_TRY(store->PutCandidates(rows));
  return Sweep(request, request.meta, *store, progress).Run();
}

Result<SweepEnd> ResumeSweep(const SweepRequest& request, Progress& progress) {
  PINION_ASSIGN(const auto folder, SweepFolder::Hold(request.folder));
  PINION_ASSIGN(const auto store, Store::Open(folder->Database(), Store::Mode::kWrite));
  PINION_ASSIGN(SweepMeta meta, ReadMeta(*store));
  PINION_TRY(CheckSame(meta, request.meta));
  meta.definition = request.meta.definition;  // budget and rounds may be new
  PINION_TRY(WriteMeta(*store, meta));
  return Sweep(request, meta, *store, progress).Run();
}

}  // namespace

Result<SweepMeta> DescribeSweep(const Definition& definition, const EngineOptions& base,
                                const Host& host, const std::string& command_line) {
  PINION_ASSIGN(const DecoderSpec spec, SpecOf(base.model, definition.engine));
  PINION_TRY(CheckStartable(definition.engine, base, host));
  SweepMeta meta;
  meta.model = base.model;
  meta.definition = definition;
  meta.base = base;
  meta.machine = MachineFingerprint(host.machine);
  meta.budget = BudgetJson(host.budget);
  meta.model_facts = spec.layers > 0 ? ModelFacts(spec) : Json::MakeObject();
  meta.command_line = command_line;
  meta.version = Version();
  meta.commit = Commit();
  meta.started_at = NowIso8601();
  return meta;
}

Result<SweepMeta> StoredSweep(const std::string& folder) {
  PINION_ASSIGN(const auto store, Store::Open(folder + "/results.db", Store::Mode::kRead));
  return ReadMeta(*store);
}

Result<SweepEnd> RunSweep(const SweepRequest& request, Progress& progress) {
  return request.resume ? ResumeSweep(request, progress) : StartSweep(request, progress);
}

}  // namespace pinion::harness
