#include "harness/sweep/live.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "engine/base/check.h"
#include "engine/base/strings.h"
#include "harness/results/figures.h"
#include "harness/space/own_settings.h"
#include "harness/stats/text.h"
#include "harness/sweep/in_turns.h"
#include "harness/sweep/protocol.h"
#include "harness/sweep/score.h"
#include "harness/sweep/state.h"

namespace pinion::harness {
namespace {

// A trial ends after this many trial limits at the latest, plus the time to load its weights from a
// slow disk. Generous, because a disturbed machine must not count as a hang.
constexpr double kHangLimits = 5, kSlowDiskBytesPerS = 50e6;
// Measuring the machine's ceilings after the load takes 8 s on two busy cores. In a small budget
// only the baseline's trial and those within this share of it do so.
constexpr double kCeilingsSeconds = 20, kCeilingsShare = 0.1;
// A trial that began in time but is slower than those before it may exceed the budget by this
// share.
constexpr double kOverrun = 0.05;

std::string ShortHash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  char hex[20];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(hash));
  return hex;
}

std::string LogPath(const Slot& slot) {
  return StrCat("logs/", slot.phase == Phase::kRace ? "" : StrCat(Name(slot.phase), "-"), "round",
                slot.round, "-candidate", slot.candidate, slot.copy ? "-second" : "",
                slot.attempt ? "-again" : "", ".log");
}

// Everything that distinguishes a configuration: its engine, every setting, and the engine's own.
std::string ConfigurationKey(const std::string& engine, const Configuration& configuration,
                             const std::vector<Setting>& settings) {
  Json key = Json::Object{{"engine", engine}};
  for (const SettingRow& row : SettingRows()) key.Set(row.key, row.get(configuration));
  for (const Setting& setting : settings)
    if (IsOwnKey(setting.key)) key.Set(setting.key, setting.value);
  return key.Dump();
}

void Take(const TrialOutcome& outcome, double limit_s, TrialRow& trial) {
  trial.ok = outcome.ok;
  trial.reason = outcome.reason;
  trial.log_tail = outcome.log_tail;
  trial.seconds = outcome.seconds;
  trial.samples = outcome.result.samples;
  trial.suspect = outcome.result.suspect;
  trial.requests = outcome.result.requests;
  trial.info = outcome.result.info;
  if (outcome.out_of_time) trial.info.out_of_time_s = limit_s;
}

// Whether a trial's batch took longer than its share, or was cut off.
bool HasLateBatch(const TrialInfo& info) { return info.has_cut_batch() || info.batch_over_s; }

// For a trial whose figures must not serve as a reference.
void FailForTime(const TrialRequest& request, const std::string& what, TrialRow& trial) {
  trial.ok = false;
  trial.reason = StrCat("its ", what, " did not end in its share of a trial of ",
                        FormatSeconds(request.limit_s));
  trial.info.out_of_time_s = request.limit_s;
}

}  // namespace

LiveSource::LiveSource(LiveOptions options, const SweepMeta& meta,
                       const std::vector<CandidateRow>& candidates,
                       const std::vector<TrialRow>& trials, Store& store, Progress& progress)
    : StoredSource(trials),
      options_(std::move(options)),
      meta_(meta),
      candidates_(candidates),
      store_(store),
      progress_(progress) {}

double LiveSource::DeadlineSeconds(const EngineChoice& engine) const {
  const Json* weight_bytes = meta_.model_facts.Find("weight_bytes");
  const double start_s = (weight_bytes ? weight_bytes->number() / kSlowDiskBytesPerS : 0) +
                         (engine.is_pinion() ? 0 : engine.start_timeout_s);
  // The load may last as long as the start, and half of that more until it is cut.
  return kHangLimits * options_.trial_limit_s + 2.5 * start_s;
}

Result<std::optional<TrialRow>> LiveSource::Run(const Slot& slot, int position,
                                                const ProgressLine& line) {
  if (const auto found = stored_.find(slot); found != stored_.end()) return found->second;
  if (options_.interrupted()) return std::optional<TrialRow>();
  PINION_TRY(FitTrials());
  progress_.Begin(line);
  // The first trial has no limit: without it there is no estimate of a sensible budget.
  const double room_s = stored_.empty() ? std::numeric_limits<double>::infinity()
                                        : line.left_s + kOverrun * meta_.definition.budget_s;
  PINION_ASSIGN(const std::optional<Slot> other, OtherInTurns(slot));
  PINION_ASSIGN(
      std::optional<TrialRow> trial,
      other ? MeasureInTurns({slot, *other}, position, room_s) : Measure(slot, position, room_s));
  if (trial) progress_.End(line, trial->ok, Summary(*trial));
  if (!trial && why_none_ == SweepEnd::kBudget)
    progress_.Note(StrCat("the budget of ", FormatSeconds(meta_.definition.budget_s),
                          " was spent in the middle of a trial of ", line.label));
  return trial;
}

// A round that was begun goes on with the candidates that it began with.
Result<std::vector<int>> LiveSource::Propose(int round, const ProposalQuestion& question) {
  PINION_ASSIGN(std::vector<int> begun, StoredSource::Propose(round, question));
  if (!begun.empty() || options_.interrupted()) return begun;
  CHECK(options_.proposer);
  auto proposed = options_.proposer->Propose(question);
  if (!proposed && options_.interrupted()) return std::vector<int>();
  return proposed;
}

// Requested limits stay. Later trials must be comparable with the first that succeeds.
bool LiveSource::IsFitting() const {
  return !meta_.definition.trial_limit_s &&
         std::none_of(stored_.begin(), stored_.end(),
                      [](const auto& known) { return known.second.ok; });
}

bool LiveSource::LacksSearchTime(const TrialRow& trial) const {
  const std::vector<Objective>& objectives = meta_.definition.objectives;
  const bool is_wanted =
      std::find(objectives.begin(), objectives.end(), Objective::kGoodput) != objectives.end();
  return is_wanted && trial.info.has_cut_search() &&
         options_.trial_limit_s < options_.most_search_s;
}

// Fits trials to the time of the defaults' first ones, on this model and machine.
Status LiveSource::FitTrials() {
  for (const auto& [slot, trial] : stored_)
    options_.batch_prompts = std::min(options_.batch_prompts, BatchPromptsOf(trial));
  if (!IsFitting()) return {};
  ShrinkBatch();
  return RaiseTrialLimit();
}

int LiveSource::BatchPromptsOf(const TrialRow& trial) const {
  return trial.info.batch_prompts > 0 ? trial.info.batch_prompts
                                      : meta_.definition.workload.load.num_prompts;
}

// A batch of fewer does not show the gain of computing sequences together.
int LiveSource::LeastBatch() const {
  constexpr int kLeastBatch = 4;
  return std::min(kLeastBatch, meta_.definition.workload.load.num_prompts);
}

// To a quarter if the smallest so far was cut off, to half if it ended late: others may be slower
// than the defaults, and the time that trials may last longer is for them.
void LiveSource::ShrinkBatch() {
  int fitting = options_.batch_prompts;
  for (const auto& [slot, trial] : stored_) {
    const int part = trial.info.has_cut_batch() ? 4 : trial.info.batch_over_s ? 2 : 1;
    fitting = std::min(fitting, std::max(LeastBatch(), BatchPromptsOf(trial) / part));
  }
  if (fitting == options_.batch_prompts) return;
  progress_.Note(StrCat("the defaults cannot finish an offline batch of ", options_.batch_prompts,
                        " prompts in time; reduced to ", fitting));
  options_.batch_prompts = fitting;
}

// A limit that was chosen by the budget and is too short for the defaults even so.
Status LiveSource::RaiseTrialLimit() {
  double too_short_s = 0, most_s = kMostTrialSeconds;
  for (const auto& [slot, trial] : stored_) {
    const bool had_large_batch = BatchPromptsOf(trial) > LeastBatch() && HasLateBatch(trial.info);
    if (had_large_batch) continue;
    too_short_s = std::max(too_short_s, trial.info.out_of_time_s.value_or(0));
    if (trial.info.has_cut_search()) most_s = options_.most_search_s;
  }
  const double raised_s = std::min(2 * too_short_s, most_s);
  if (raised_s <= options_.trial_limit_s) return {};
  progress_.Note(StrCat("the defaults need more than ", FormatSeconds(too_short_s),
                        " per trial; they get ", FormatSeconds(raised_s)));
  options_.trial_limit_s = raised_s;
  return WriteTrialLimit(store_, raised_s);
}

Result<LiveSource::TrialJob> LiveSource::JobFor(const Slot& slot) const {
  const CandidateRow& row = RowOf(candidates_, slot.candidate);
  TrialJob job;
  job.engine = row.engine;
  job.settings = row.settings;
  TrialRequest& request = job.request;
  request.engine = WithOwnSettings(EngineNamed(meta_.definition, row.engine), job.settings);
  request.configuration = row.configuration;
  request.log = options_.folder + "/" + LogPath(slot);
  request.workload = meta_.definition.workload;
  request.workload.batch = RunsBatch(meta_.definition);
  request.seed = RoundSeed(meta_.definition.seed, slot.phase, slot.round);
  request.limit_s = options_.trial_limit_s;
  request.batch_prompts = options_.batch_prompts;
  request.deadline_s = DeadlineSeconds(request.engine);
  request.ceilings =
      IsFirst(slot) &&
      (slot.candidate == 0 || CeilingsSecondsSoFar() < kCeilingsShare * meta_.definition.budget_s);
  return job;
}

TrialRow LiveSource::NewRow(const Slot& slot, int position) const {
  TrialRow trial;
  static_cast<Slot&>(trial) = slot;
  trial.position = position;
  trial.started_at = NowIso8601();
  trial.log_path = LogPath(slot);
  return trial;
}

Result<TrialProcess> LiveSource::ProcessFor(const TrialJob& job, double timeout_s) const {
  TrialProcess process = {options_.binary, job.request.log, timeout_s};
  process.interrupted = options_.interrupted;
  process.clock = options_.clock;
  PINION_ASSIGN(process.environment,
                EnvironmentOf(job.request.configuration.runtime, RuntimeOffer::Here()));
  return process;
}

Result<std::optional<TrialRow>> LiveSource::Measure(const Slot& slot, int position, double room_s) {
  TrialRow trial = NewRow(slot, position);
  PINION_ASSIGN(const TrialJob job, JobFor(slot));
  const TrialRequest& request = job.request;
  const double hang_s = *request.deadline_s + (request.ceilings ? kCeilingsSeconds : 0);
  PINION_ASSIGN(const TrialProcess process, ProcessFor(job, std::min(room_s, hang_s)));
  PINION_ASSIGN(const TrialOutcome outcome, RunTrialProcess(request, process));
  if (!outcome.ok && outcome.seconds > room_s) why_none_ = SweepEnd::kBudget;
  if (outcome.interrupted || why_none_ == SweepEnd::kBudget) return std::optional<TrialRow>();
  PINION_TRY(Keep(job, outcome, trial));
  return std::optional(std::move(trial));
}

Status LiveSource::Keep(const TrialJob& job, const TrialOutcome& outcome, TrialRow& trial) {
  const TrialRequest& request = job.request;
  Take(outcome, request.limit_s, trial);
  if (options_.batch_prompts < meta_.definition.workload.load.num_prompts)
    trial.info.batch_prompts = options_.batch_prompts;
  if (trial.ok && IsFitting()) {
    if (HasLateBatch(trial.info))
      FailForTime(request, StrCat("offline batch of ", *request.batch_prompts, " prompts"), trial);
    else if (LacksSearchTime(trial))
      FailForTime(request, "search of the SLO's load", trial);
  }
  if (const auto cost = CostPerMillionTokens(trial, meta_.definition))
    trial.samples.push_back({"cost_per_mtoken", 0, *cost});
  const std::string key = ConfigurationKey(job.engine, request.configuration, job.settings);
  PINION_TRY(
      store_.PutTrial(trial, {ShortHash(meta_.machine.Dump()), meta_.model, key, request.seed}));
  trial.requests.clear();  // they are in the store, and may be many
  stored_[trial] = trial;
  return {};
}

// Servers in turns inherit the environment of one process.
Result<std::optional<Slot>> LiveSource::OtherInTurns(const Slot& slot) {
  if (meta_.definition.strategy != Strategy::kPair || slot.phase != Phase::kRace)
    return std::optional<Slot>();
  Slot other = slot;
  other.candidate = 1 - slot.candidate;
  if (stored_.count(other)) return std::optional<Slot>();
  if (!takes_turns_) {
    PINION_ASSIGN(const TrialJob first, JobFor(slot));
    PINION_ASSIGN(const TrialJob second, JobFor(other));
    takes_turns_ = first.request.configuration.runtime == second.request.configuration.runtime &&
                   CanTakeTurns(first.request, second.request);
    progress_.Note(*takes_turns_ ? "both servers run at once, and their loads take turns"
                                 : "memory does not hold both servers at once, or their "
                                   "environments differ: each trial starts its own");
  }
  return *takes_turns_ ? std::optional(other) : std::nullopt;
}

Result<std::optional<TrialRow>> LiveSource::MeasureInTurns(const std::array<Slot, 2>& slots,
                                                           int position, double room_s) {
  const auto alone = std::find_if(stored_.begin(), stored_.end(), [](const auto& known) {
    return known.first.candidate == 0 && known.second.ok && known.second.info.waves.empty();
  });
  PairRequest pair;
  pair.waves = alone == stored_.end() ? 2 : WavesFor(alone->second, meta_.definition.budget_s);
  std::array<TrialJob, 2> jobs;
  double deadline_s = 0;
  for (size_t side = 0; side < slots.size(); ++side) {
    PINION_ASSIGN(jobs[side], JobFor(slots[side]));
    jobs[side].request.ceilings = false;
    deadline_s += *jobs[side].request.deadline_s +
                  kHangLimits * options_.trial_limit_s * static_cast<double>(pair.waves - 1);
  }
  std::array<TrialRow, 2> rows = {NewRow(slots[0], position), NewRow(slots[1], position + 1)};
  for (size_t side = 0; side < slots.size(); ++side) {
    jobs[side].request.deadline_s = deadline_s;
    pair.sides[side] = jobs[side].request;
  }
  PINION_ASSIGN(const TrialProcess process, ProcessFor(jobs[0], std::min(room_s, deadline_s)));
  PINION_ASSIGN(const auto outcomes, RunPairProcess(pair, process));
  const bool lost = !outcomes[0].ok && !outcomes[1].ok;
  if (lost && outcomes[0].seconds + outcomes[1].seconds > room_s) why_none_ = SweepEnd::kBudget;
  if (outcomes[0].interrupted || why_none_ == SweepEnd::kBudget) return std::optional<TrialRow>();
  for (size_t side = 0; side < slots.size(); ++side)
    PINION_TRY(Keep(jobs[side], outcomes[side], rows[side]));
  return std::optional(std::move(rows[0]));
}

bool LiveSource::IsFirst(const Slot& slot) const {
  if (slot.phase != Phase::kRace || slot.copy > 0) return false;
  return std::none_of(stored_.begin(), stored_.end(), [&](const auto& known) {
    const auto& [other, trial] = known;
    return other.candidate == slot.candidate && other.phase == slot.phase && other.copy == 0 &&
           trial.ok;
  });
}

double LiveSource::CeilingsSecondsSoFar() const {
  double seconds = 0;
  for (const auto& [slot, trial] : stored_) seconds += trial.info.once_s.value_or(0);
  return seconds;
}

std::string LiveSource::Summary(const TrialRow& trial) const {
  if (!trial.ok) return trial.reason;
  const auto log_rate = LogScore(trial, Objective::kThroughput, meta_.definition);
  return StrCat(Printf("%.1f s", trial.seconds),
                log_rate ? Printf(", %.4g tokens/s", std::exp(*log_rate)) : "",
                trial.suspect.empty() ? "" : ", disturbed");
}

}  // namespace pinion::harness
