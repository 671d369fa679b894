#include "harness/sweep/replay.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <sstream>

#include "engine/base/check.h"
#include "engine/base/strings.h"
#include "harness/stats/estimate.h"
#include "harness/sweep/assemble.h"
#include "harness/sweep/pair.h"
#include "harness/sweep/proposer.h"
#include "harness/sweep/protocol.h"
#include "harness/sweep/score.h"

namespace pinion::harness {
namespace {

constexpr int kExhaustiveRounds = 20;
constexpr double kLimitSeconds = 2;  // of a trial that takes 1 s at the recording's median

// One trial's log scores, how long it took, and what went wrong.
struct Draw {
  double log_score = 0, log_latency_score = 0, seconds = 0;
  bool fails = false, is_disturbed = false;
};

// Contestants whose trials are drawn, and their true speeds.
class Drawn : public TrialSource {
 public:
  explicit Drawn(Proposer* proposer) : proposer_(proposer) {}

  Result<std::vector<int>> Propose(int, const ProposalQuestion& question) override {
    CHECK(proposer_);
    return proposer_->Propose(question);
  }
  Result<std::optional<TrialRow>> Run(const Slot& slot, int position,
                                      const ProgressLine&) override {
    const Draw draw = Next(slot);
    TrialRow trial;
    static_cast<Slot&>(trial) = slot;
    trial.position = position;
    trial.seconds = draw.seconds;
    trial.ok = !draw.fails;
    if (draw.fails) trial.reason = "planted";
    if (draw.fails) return std::optional(std::move(trial));
    if (draw.is_disturbed) trial.suspect = {"planted"};
    const double latency_s = std::exp(-draw.log_latency_score);
    trial.samples = {{"output_tokens_per_s", 0, std::exp(draw.log_score)},
                     {"ttft_s", 1, latency_s},
                     {"tpot_s", 1, latency_s}};
    return std::optional(std::move(trial));
  }
  const std::map<Slot, TrialRow>& Stored() const override { return nothing_; }

 protected:
  virtual Draw Next(const Slot& slot) = 0;

 private:
  Proposer* proposer_;  // of the strategies that need one
  std::map<Slot, TrialRow> nothing_;
};

class PlantedSource : public Drawn {
 public:
  PlantedSource(const Recording& recording, const Planted& planted,
                const std::vector<double>& log_truth, const std::vector<double>& noisier,
                uint64_t seed, Proposer* proposer)
      : Drawn(proposer),
        planted_(planted),
        random_(seed),
        noise_(recording.log_speeds),
        log_truth_(log_truth),
        noisier_(noisier),
        middle_(Median(noise_)),
        offset_(random_() % noise_.size()),
        row_(offset_) {}

  size_t offset() const { return offset_; }

 private:
  Draw Next(const Slot& slot) override {
    const auto index = static_cast<size_t>(slot.candidate);
    // Latency's noise comes from the other half of the series.
    const double speed = SpeedAt(row_, index), latency = SpeedAt(row_ + noise_.size() / 2, index);
    ++row_;
    std::uniform_real_distribution<double> share(0, 1);
    const double fate = share(random_);
    Draw draw;
    draw.fails = fate < planted_.failures;
    draw.is_disturbed = !draw.fails && fate < planted_.failures + planted_.disturbed;
    const double lost = draw.is_disturbed ? std::log1p(-share(random_) / 2) : 0;
    draw.log_score = speed + lost;
    draw.log_latency_score = latency + lost;
    // The same work, faster or slower; a trial's limit cuts it off.
    draw.seconds = std::min(kLimitSeconds, std::exp(middle_ - draw.log_score));
    return draw;
  }
  // What is noisier has noise of its own on top: differences of neighbours elsewhere in the series,
  // which favour neither side, so that the truth stays the median of a comparison.
  double SpeedAt(size_t row, size_t candidate) const {
    const auto at = [&](size_t r) { return noise_[r % noise_.size()]; };
    const double factor = noisier_[candidate], own = std::sqrt((factor * factor - 1) / 2);
    const size_t elsewhere = row + noise_.size() / 4;
    return at(row) + own * (at(elsewhere) - at(elsewhere + 1)) + log_truth_[candidate];
  }

  const Planted& planted_;
  std::mt19937_64 random_;
  const std::vector<double>& noise_;
  const std::vector<double>& log_truth_;
  const std::vector<double>& noisier_;
  double middle_;
  size_t offset_, row_;
};

class RecordedSource : public Drawn {
 public:
  RecordedSource(const RecordedSweep& recorded, uint64_t seed, Proposer* proposer)
      : Drawn(proposer), recorded_(recorded), random_(seed) {}

  size_t offset() const { return 0; }  // whole rounds are drawn, of no series

 private:
  Draw Next(const Slot& slot) override {
    const auto [drawn, is_new] = rounds_.emplace(std::pair(slot.phase, slot.round), 0);
    if (is_new) drawn->second = random_() % recorded_.rounds.size();
    const RecordedSweep::Round& round = recorded_.rounds[drawn->second];
    const auto index = static_cast<size_t>(slot.candidate);
    const RecordedSweep::Contestant& contestant = recorded_.contestants[index];
    const double seconds = contestant.seconds[random_() % contestant.seconds.size()];
    if (slot.candidate == 0) return {slot.copy ? round.baseline_again : round.baseline, 0, seconds};
    const auto own = round.scores.find(index);
    if (own != round.scores.end()) return {own->second, 0, seconds};
    const std::vector<double>& ratios = contestant.log_ratios;
    return {round.baseline + ratios[random_() % ratios.size()], 0, seconds};
  }

  const RecordedSweep& recorded_;
  std::mt19937_64 random_;
  std::map<RoundKey, size_t> rounds_;
};

// Whether the truth lies in the interval with which the verdict was printed.
std::optional<bool> Covered(const Verdict& verdict, double log_truth) {
  const auto& interval = verdict.best_ratio.interval;
  if (!verdict.confirmed || !interval) return std::nullopt;
  // The truth may be an end of the interval to the last bit.
  constexpr double kRounding = 1e-12;
  return interval->low <= std::exp(log_truth) + kRounding &&
         std::exp(log_truth) - kRounding <= interval->high;
}

// Takes one objective's verdict and the leader of its race; of several, the worst counts.
void Take(const Verdict& verdict, int leader, const std::vector<double>& log_truth, double epsilon,
          ReplayEnding& ending) {
  const double best = *std::max_element(log_truth.begin(), log_truth.end());
  const auto truth = [&](int candidate) { return log_truth[static_cast<size_t>(candidate)]; };
  const int crowned = verdict.outcome == Outcome::kWinner ? verdict.recommended : 0;
  if (crowned && (!ending.crowned || truth(crowned) < ending.crowned_log_truth)) {
    ending.crowned = crowned;
    ending.crowned_log_truth = truth(crowned);
  }
  ending.crowned_small |= crowned && verdict.ratio.median <= 1 + std::max(verdict.floor, epsilon);
  if (verdict.outcome == Outcome::kBaselineBest) {
    ending.default_best = true;
    ending.false_best |= *std::max_element(log_truth.begin() + 1, log_truth.end()) >= 0;
  }
  ending.undecided |= verdict.outcome == Outcome::kTooFewRounds;
  if (leader && !ending.ended_with) ending.ended_with = leader;
  ending.regret = std::max(ending.regret, -std::expm1(truth(crowned) - best));
  ending.floor = std::max(ending.floor, verdict.floor);
  if (!ending.covered) ending.covered = Covered(verdict, truth(verdict.best));
}

Result<ReplayEnding> ReplayOnce(const Definition& definition,
                                const std::vector<CandidateRow>& candidates, Drawn& source,
                                const std::vector<double>& log_truth) {
  SilentProgress silence;
  const Forecasts nothing_predicted;
  Protocol protocol(definition, candidates, nothing_predicted, source, silence);
  auto end = protocol.Run();
  const ProtocolState& state = protocol.state();
  // A default whose planted failures end the sweep before it ever ran: nothing is found.
  const bool never_ran = std::all_of(state.trials.begin(), state.trials.end(),
                                     [](const TrialRow& trial) { return !trial.ok; });
  if (!end && (!never_ran || state.trials.empty())) return Unexpected(std::move(end).error());
  std::vector<VerdictInput> inputs;
  std::vector<int> leaders;
  for (size_t i = 0; i < definition.objectives.size(); ++i) {
    const ObjectiveRace* race = state.races.empty() ? nullptr : &state.races[i];
    inputs.push_back(InputFor(definition.objectives[i], definition, candidates, state.trials, race,
                              state.race_over));
    leaders.push_back(race ? race->leader().value_or(0) : 0);
  }
  std::vector<Verdict> verdicts = Decide(inputs);
  if (definition.strategy == Strategy::kPair) {
    verdicts = {AsVerdict(JudgePair(state.trials, definition.objectives.front(), definition))};
    verdicts.front().confirmed = true;  // no choice was made: every round is as good as a fresh one
  }
  ReplayEnding outcome;
  for (size_t i = 0; i < verdicts.size(); ++i)
    Take(verdicts[i], leaders[i], log_truth, definition.epsilon, outcome);
  const Spending& spending = protocol.spending();
  outcome.unspent =
      outcome.undecided && spending.left_s() >= spending.RoundSeconds({0, outcome.ended_with});
  outcome.trials = static_cast<double>(state.trials.size());
  const double budget_s = definition.budget_s;
  outcome.overrun = std::max(0.0, spending.spent_s() - budget_s) / budget_s;
  return outcome;
}

// "isa=avx2 smt=on" as two settings; another name as one.
Json SettingsIn(const std::string& name) {
  Json settings = Json::MakeArray();
  const auto add = [&](const std::string& key, const std::string& value) {
    settings.Append(Json(std::vector<std::string>{key, value}));
  };
  std::istringstream words(name);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
      settings = Json::MakeArray();
      add("configuration", name);
      return settings;
    }
    add(word.substr(0, equals), word.substr(equals + 1));
  }
  return settings;
}

std::vector<CandidateRow> RowsFor(const std::vector<std::string>& names) {
  std::vector<CandidateRow> rows;
  for (const std::string& name : names) {
    CandidateRow row;
    row.id = static_cast<int>(rows.size());
    row.label = name;
    row.is_baseline = rows.empty();
    row.settings = row.is_baseline ? Json::MakeArray() : SettingsIn(name);
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
  std::vector<double> regrets, costs, overruns, floors;
  int covered = 0, confirmed = 0;
  for (const ReplayEnding& one : endings) {
    (one.crowned ? report.winners[static_cast<size_t>(one.crowned) - 1].second : report.none) += 1;
    report.undecided += one.undecided ? 1 : 0;
    report.unspent += one.unspent ? 1 : 0;
    regrets.push_back(one.regret);
    costs.push_back(one.cost);
    overruns.push_back(one.overrun);
    floors.push_back(one.floor);
    confirmed += one.covered ? 1 : 0;
    covered += one.covered.value_or(false) ? 1 : 0;
  }
  if (confirmed) report.interval_coverage = static_cast<double>(covered) / confirmed;
  report.regret_p95 = Quantile(regrets, 0.95);
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
  if (definition.budget_s <= 0) definition.budget_s = exhaustive * trial_s;
  std::unique_ptr<Proposer> proposer;
  if (definition.strategy == Strategy::kTpe) {
    PINION_ASSIGN(proposer, StartTpe(candidates, [] { return std::string(); }));
  }
  std::vector<ReplayEnding> endings;
  for (int k = 0; k < options.seeds; ++k) {
    definition.seed = options.definition.seed + static_cast<uint64_t>(k);
    auto source = make_source(definition.seed, proposer.get());
    PINION_ASSIGN(ReplayEnding one, ReplayOnce(definition, candidates, source, log_truth));
    one.offset = source.offset();
    one.cost = one.trials / exhaustive;
    endings.push_back(one);
  }
  return endings;
}

}  // namespace

Result<ReplayReport> ReplayPlanted(const Recording& recording, const Planted& planted,
                                   const ReplayOptions& options) {
  std::vector<std::string> names;
  std::vector<double> log_truth, noisier;
  for (const auto& [name, speed] : planted.configurations) {
    names.push_back(name);
    log_truth.push_back(std::log(speed / planted.configurations[0].second));
    const auto factor = planted.noise.find(name);
    noisier.push_back(factor == planted.noise.end() ? 1 : factor->second);
  }
  ReplayOptions asked = options;
  asked.definition.objectives = {Objective::kThroughput, Objective::kLatency, Objective::kBalanced};
  asked.definition.objectives.resize(planted.objectives);
  if (options.definition.strategy == Strategy::kPair &&
      (names.size() != 2 || planted.objectives != 1))
    return Fail(ErrorCode::kUsage, "strategy pair compares two configurations in one objective");
  const size_t contestants = names.size() - (planted.default_is_listed ? 0 : 1);
  PINION_ASSIGN(
      const std::vector<ReplayEnding> endings,
      Replays(names, log_truth, contestants, 1, asked, [&](uint64_t seed, Proposer* proposer) {
        return PlantedSource(recording, planted, log_truth, noisier, seed, proposer);
      }));
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
  ReplayOptions asked = options;
  asked.definition.objectives = {Objective::kThroughput};
  PINION_ASSIGN(const std::vector<ReplayEnding> endings,
                Replays(names, log_truth, names.size(), trial_s, asked,
                        [&](uint64_t seed, Proposer* proposer) {
                          return RecordedSource(recorded, seed, proposer);
                        }));
  return Summed(endings, names);
}

}  // namespace pinion::harness
