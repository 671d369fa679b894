#include "harness/sweep/replay.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "engine/base/strings.h"
#include "harness/stats/estimate.h"
#include "harness/sweep/assemble.h"
#include "harness/sweep/protocol.h"
#include "harness/sweep/score.h"

namespace pinion::harness {
namespace {

constexpr int kExhaustiveRounds = 20;
constexpr double kLimitSeconds = 2;  // of a trial that takes 1 s at the recording's median
const char* const kScoreMetric = "output_tokens_per_s";  // what LogScore reads for throughput

// One trial's log score and how long it took.
struct Draw {
  double log_score = 0, seconds = 0;
};

// Contestants whose trials are drawn, and their true speeds.
class Drawn : public TrialSource {
 public:
  Result<std::optional<TrialRow>> Run(const Slot& slot, int position,
                                      const ProgressLine&) override {
    const Draw draw = Next(slot);
    TrialRow trial;
    static_cast<Slot&>(trial) = slot;
    trial.position = position;
    trial.ok = true;
    trial.seconds = draw.seconds;
    trial.samples = {{kScoreMetric, 0, std::exp(draw.log_score)}};
    return std::optional(std::move(trial));
  }
  const std::map<Slot, TrialRow>& Stored() const override { return nothing_; }

 protected:
  virtual Draw Next(const Slot& slot) = 0;

 private:
  std::map<Slot, TrialRow> nothing_;
};

class PlantedSource : public Drawn {
 public:
  PlantedSource(const Recording& recording, const std::vector<double>& log_truth, uint64_t seed)
      : noise_(recording.log_speeds),
        log_truth_(log_truth),
        middle_(Median(noise_)),
        offset_(std::mt19937_64(seed)() % noise_.size()),
        row_(offset_) {}

  size_t offset() const { return offset_; }

 private:
  Draw Next(const Slot& slot) override {
    const double speed =
        noise_[row_++ % noise_.size()] + log_truth_[static_cast<size_t>(slot.candidate)];
    // The same work, faster or slower; a trial's limit cuts it off.
    return {speed, std::min(kLimitSeconds, std::exp(middle_ - speed))};
  }

  const std::vector<double>& noise_;
  const std::vector<double>& log_truth_;
  double middle_;
  size_t offset_, row_;
};

class RecordedSource : public Drawn {
 public:
  RecordedSource(const RecordedSweep& recorded, uint64_t seed)
      : recorded_(recorded), random_(seed) {}

  size_t offset() const { return 0; }  // whole rounds are drawn, of no series

 private:
  Draw Next(const Slot& slot) override {
    const auto [drawn, is_new] = rounds_.emplace(std::pair(slot.phase, slot.round), 0);
    if (is_new) drawn->second = random_() % recorded_.rounds.size();
    const RecordedSweep::Round& round = recorded_.rounds[drawn->second];
    const auto index = static_cast<size_t>(slot.candidate);
    const RecordedSweep::Contestant& contestant = recorded_.contestants[index];
    const double seconds = contestant.seconds[random_() % contestant.seconds.size()];
    if (slot.candidate == 0) return {slot.copy ? round.baseline_again : round.baseline, seconds};
    const auto own = round.scores.find(index);
    if (own != round.scores.end()) return {own->second, seconds};
    const std::vector<double>& ratios = contestant.log_ratios;
    return {round.baseline + ratios[random_() % ratios.size()], seconds};
  }

  const RecordedSweep& recorded_;
  std::mt19937_64 random_;
  std::map<RoundKey, size_t> rounds_;
};

std::optional<bool> Covered(const VerdictInput& input, int candidate, double log_truth) {
  for (const PairedSeries& series : input.contestants) {
    if (series.candidate != candidate) continue;
    std::vector<double> values;
    for (const auto& [round, value] : series.confirmation) values.push_back(value);
    const Estimate ratio = EstimateRatio(values);
    if (!ratio.interval) return std::nullopt;
    // The truth may be an end of the interval to the last bit.
    constexpr double kRounding = 1e-12;
    return ratio.interval->low <= std::exp(log_truth) + kRounding &&
           std::exp(log_truth) - kRounding <= ratio.interval->high;
  }
  return std::nullopt;
}

Result<ReplayEnding> ReplayOnce(const Definition& definition,
                                const std::vector<CandidateRow>& candidates, Drawn& source,
                                const std::vector<double>& log_truth) {
  SilentProgress silence;
  const Forecasts nothing_predicted;
  Protocol protocol(definition, candidates, nothing_predicted, source, silence);
  PINION_ASSIGN(const SweepEnd end, protocol.Run());
  (void)end;
  const ProtocolState& state = protocol.state();
  const ObjectiveRace* race = state.races.empty() ? nullptr : &state.races.front();
  const VerdictInput input =
      InputFor(Objective::kThroughput, definition, candidates, state.trials, race, state.race_over);
  const Verdict verdict = Decide(input);
  ReplayEnding outcome;
  outcome.crowned = verdict.outcome == Outcome::kWinner ? verdict.recommended : 0;
  outcome.undecided = verdict.outcome == Outcome::kTooFewRounds;
  outcome.ended_with = race && race->leader() ? *race->leader() : 0;
  outcome.crowned_log_truth = log_truth[static_cast<size_t>(outcome.crowned)];
  const double best = *std::max_element(log_truth.begin(), log_truth.end());
  outcome.regret = -std::expm1(log_truth[static_cast<size_t>(outcome.ended_with)] - best);
  outcome.recommended_regret = -std::expm1(outcome.crowned_log_truth - best);
  const Spending& spending = protocol.spending();
  outcome.unspent =
      outcome.undecided && spending.left_s() >= spending.RoundSeconds({0, outcome.ended_with});
  outcome.trials = static_cast<double>(state.trials.size());
  const double budget_s = definition.budget_s;
  outcome.overrun = std::max(0.0, spending.spent_s() - budget_s) / budget_s;
  outcome.floor = verdict.floor;
  if (!state.confirmed.empty())
    outcome.covered = Covered(input, state.confirmed.front(),
                              log_truth[static_cast<size_t>(state.confirmed.front())]);
  return outcome;
}

std::vector<CandidateRow> RowsFor(const std::vector<std::string>& names) {
  std::vector<CandidateRow> rows;
  for (const std::string& name : names) {
    CandidateRow row;
    row.id = static_cast<int>(rows.size());
    row.label = name;
    row.is_baseline = rows.empty();
    row.settings = Json::MakeArray();
    if (!row.is_baseline)
      row.settings.Append(Json(std::vector<std::string>{"configuration", name}));
    rows.push_back(std::move(row));
  }
  return rows;
}

// Figures that need nothing of the series.
ReplayReport Summed(const std::vector<ReplayEnding>& endings,
                    const std::vector<std::string>& names) {
  ReplayReport report;
  report.seeds = static_cast<int>(endings.size());
  report.default_name = names[0];
  for (size_t c = 1; c < names.size(); ++c) report.winners.emplace_back(names[c], 0);
  std::vector<double> regrets, recommended_regrets, costs, overruns, floors;
  int covered = 0, confirmed = 0;
  for (const ReplayEnding& one : endings) {
    (one.crowned ? report.winners[static_cast<size_t>(one.crowned) - 1].second : report.none) += 1;
    report.undecided += one.undecided ? 1 : 0;
    report.unspent += one.unspent ? 1 : 0;
    regrets.push_back(one.regret);
    recommended_regrets.push_back(one.recommended_regret);
    costs.push_back(one.cost);
    overruns.push_back(one.overrun);
    floors.push_back(one.floor);
    confirmed += one.covered ? 1 : 0;
    covered += one.covered.value_or(false) ? 1 : 0;
  }
  if (confirmed) report.interval_coverage = static_cast<double>(covered) / confirmed;
  report.regret_p95 = Quantile(regrets, 0.95);
  report.recommended_regret_p95 = Quantile(recommended_regrets, 0.95);
  report.cost_fraction_p50 = Quantile(costs, 0.5);
  report.budget_overrun_p95 = Quantile(overruns, 0.95);
  report.floor_p50 = Quantile(floors, 0.5);
  return report;
}

// All replays of contestants whose source is made anew for each seed.
template <typename MakeSource>
Result<std::vector<ReplayEnding>> Replays(const std::vector<std::string>& names,
                                          const std::vector<double>& log_truth, size_t contestants,
                                          double trial_s, const ReplayOptions& options,
                                          MakeSource make_source) {
  const std::vector<CandidateRow> candidates = RowsFor(names);
  const double exhaustive = kExhaustiveRounds * static_cast<double>(contestants);
  Definition definition = options.definition;
  definition.objectives = {Objective::kThroughput};
  if (definition.budget_s <= 0) definition.budget_s = exhaustive * trial_s;
  std::vector<ReplayEnding> endings;
  for (int k = 0; k < options.seeds; ++k) {
    definition.seed = options.definition.seed + static_cast<uint64_t>(k);
    auto source = make_source(definition.seed);
    PINION_ASSIGN(ReplayEnding one, ReplayOnce(definition, candidates, source, log_truth));
    one.offset = source.offset();
    one.cost = one.trials / exhaustive;
    endings.push_back(one);
  }
  return endings;
}

}  // namespace

Result<Planted> ParsePlanted(const Json& object) {
  const Json* configurations = object.Find("configurations");
  if (!configurations || !configurations->is_object() || configurations->object().empty())
    return Fail(ErrorCode::kUsage,
                "planted effects are {\"configurations\":{\"name\":relative speed,...}}");
  Planted planted;
  auto& list = planted.configurations;
  for (const auto& [name, speed] : configurations->object()) {
    if (!speed.is_number() || !(speed.number() > 0))
      return Fail(ErrorCode::kUsage, StrCat("the relative speed of '", name,
                                            "' must be a number above 0, not ", speed.Dump()));
    if (name == "none")
      return Fail(ErrorCode::kUsage,
                  "a configuration cannot be called 'none': that counts replays without a winner");
    list.emplace_back(name, speed.number());
  }
  auto baseline = std::find_if(list.begin(), list.end(),
                               [](const auto& one) { return one.first == "default"; });
  if (baseline == list.end())
    baseline =
        std::find_if(list.begin(), list.end(), [](const auto& one) { return one.second == 1; });
  planted.default_is_listed = baseline != list.end();
  if (planted.default_is_listed) {
    std::rotate(list.begin(), baseline, baseline + 1);
  } else {
    list.emplace(list.begin(), "default", 1.0);
  }
  if (list.size() < 2)
    return Fail(ErrorCode::kUsage, "planted effects need a configuration besides the default");
  return planted;
}

Result<ReplayReport> ReplayPlanted(const Recording& recording, const Planted& planted,
                                   const ReplayOptions& options) {
  std::vector<std::string> names;
  std::vector<double> log_truth;
  for (const auto& [name, speed] : planted.configurations) {
    names.push_back(name);
    log_truth.push_back(std::log(speed / planted.configurations[0].second));
  }
  const size_t contestants = names.size() - (planted.default_is_listed ? 0 : 1);
  PINION_ASSIGN(const std::vector<ReplayEnding> endings,
                Replays(names, log_truth, contestants, 1, options,
                        [&](uint64_t seed) { return PlantedSource(recording, log_truth, seed); }));
  ReplayReport report = Summed(endings, names);
  report.by_blocks = FiguresOf(endings, recording.log_speeds.size(),
                               *std::max_element(log_truth.begin(), log_truth.end()));
  return report;
}

Result<ReplayReport> ReplaySweep(const RecordedSweep& recorded, const ReplayOptions& options) {
  std::vector<std::string> names;
  std::vector<double> log_truth;
  double trial_s = 0;
  for (const RecordedSweep::Contestant& one : recorded.contestants) {
    names.push_back(one.name);
    log_truth.push_back(Median(one.log_ratios));
    trial_s = std::max(trial_s, Median(one.seconds));
  }
  PINION_ASSIGN(const std::vector<ReplayEnding> endings,
                Replays(names, log_truth, names.size(), trial_s, options,
                        [&](uint64_t seed) { return RecordedSource(recorded, seed); }));
  return Summed(endings, names);
}

}  // namespace pinion::harness
