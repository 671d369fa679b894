#include "harness/sweep/drawn.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/check.h"
#include "harness/stats/estimate.h"

namespace pinion::harness {
namespace {

constexpr double kLimitSeconds = 2;  // of a trial that takes 1 s at the recording's median

// The part of the difference of two recorded values that makes noise `factor` times as large: such
// a difference has twice the variance of one value, and favours neither side, so that the truth
// stays the median of a comparison.
double OwnNoise(double factor) { return std::sqrt((factor * factor - 1) / 2); }

}  // namespace

std::vector<PlantedCandidate> CandidatesOf(const Planted& planted) {
  std::vector<PlantedCandidate> candidates;
  for (const auto& [name, speed] : planted.configurations) {
    const auto noise = planted.noise.find(name);
    candidates.push_back({std::log(speed / planted.configurations[0].second),
                          noise == planted.noise.end() ? 1 : noise->second});
  }
  return candidates;
}

DrawnSource::DrawnSource(const Planted& planted, uint64_t seed, Proposer* proposer)
    : planted_(planted), candidates_(CandidatesOf(planted)), random_(seed), proposer_(proposer) {}

Result<std::vector<int>> DrawnSource::Propose(int, const ProposalQuestion& question) {
  CHECK(proposer_);
  return proposer_->Propose(question);
}

Result<std::optional<TrialRow>> DrawnSource::Run(const Slot& slot, int position,
                                                 const ProgressLine&) {
  const Draw draw = Next(slot);
  TrialRow trial;
  static_cast<Slot&>(trial) = slot;
  trial.position = position;
  // Without troubles no numbers are drawn for them, so that a recorded sweep replays as it is.
  std::uniform_real_distribution<double> share(0, 1);
  const bool has_troubles = planted_.failures > 0 || planted_.disturbed > 0;
  const double fate = has_troubles ? share(random_) : 1;
  trial.ok = fate >= planted_.failures;
  const bool is_disturbed = trial.ok && fate < planted_.failures + planted_.disturbed;
  const double lost = is_disturbed ? std::log1p(-share(random_) / 2) : 0;
  // The same work at another speed; a trial's limit cuts it off.
  trial.seconds = std::min(draw.most_seconds, draw.seconds * std::exp(-lost));
  if (!trial.ok) {
    trial.reason = "planted";
    return std::optional(std::move(trial));
  }
  if (is_disturbed) trial.suspect = {"planted"};
  const double latency_s = std::exp(-draw.log_latency_score - lost);
  trial.samples = {{"output_tokens_per_s", 0, std::exp(draw.log_score + lost)},
                   {"ttft_s", 1, latency_s},
                   {"tpot_s", 1, latency_s}};
  return std::optional(std::move(trial));
}

SeriesSource::SeriesSource(const Recording& recording, const Planted& planted, uint64_t seed,
                           Proposer* proposer)
    : DrawnSource(planted, seed, proposer),
      noise_(recording.log_speeds),
      middle_(Median(noise_)),
      offset_(Any(noise_.size())),
      row_(offset_) {}

DrawnSource::Draw SeriesSource::Next(const Slot& slot) {
  const auto index = static_cast<size_t>(slot.candidate);
  // Latency's noise comes from the other half of the series.
  Draw draw;
  draw.log_score = SpeedAt(row_, index);
  draw.log_latency_score = SpeedAt(row_ + noise_.size() / 2, index);
  draw.seconds = std::exp(middle_ - draw.log_score);
  draw.most_seconds = kLimitSeconds;
  ++row_;
  return draw;
}

// A noisier candidate has noise of its own on top, of neighbours elsewhere in the series.
double SeriesSource::SpeedAt(size_t row, size_t candidate) const {
  const auto at = [&](size_t r) { return noise_[r % noise_.size()]; };
  const PlantedCandidate& planted = candidates_[candidate];
  const size_t elsewhere = row + noise_.size() / 4;
  return at(row) + OwnNoise(planted.noise) * (at(elsewhere) - at(elsewhere + 1)) +
         planted.log_speed;
}

SweepSource::SweepSource(const RecordedSweep& recorded, const Planted& planted, uint64_t seed,
                         Proposer* proposer)
    : DrawnSource(planted, seed, proposer), recorded_(recorded) {}

DrawnSource::Draw SweepSource::Next(const Slot& slot) {
  const auto index = static_cast<size_t>(slot.candidate);
  const std::vector<double>& seconds = recorded_.contestants[index].seconds;
  Draw draw;
  draw.log_score = ScoreOf(slot, rounds_);
  draw.seconds = seconds[Any(seconds.size())] * std::exp(-candidates_[index].log_speed);
  // Latency's noise comes from another round.
  if (planted_.objectives > 1) draw.log_latency_score = ScoreOf(slot, latency_rounds_);
  return draw;
}

// A candidate that was not measured in the drawn round has its own ratio of another one there.
double SweepSource::ScoreOf(const Slot& slot, Rounds& rounds) {
  const auto index = static_cast<size_t>(slot.candidate);
  const auto [drawn, is_new] = rounds.emplace(std::pair(slot.phase, slot.round), 0);
  if (is_new) drawn->second = Any(recorded_.rounds.size());
  const RecordedSweep::Round& round = recorded_.rounds[drawn->second];
  double score = slot.copy ? round.baseline_again : round.baseline;
  if (slot.candidate != 0) {
    const auto own = round.scores.find(index);
    const std::vector<double>& ratios = recorded_.contestants[index].log_ratios;
    score = own != round.scores.end() ? own->second : round.baseline + ratios[Any(ratios.size())];
  }
  const PlantedCandidate& planted = candidates_[index];
  if (planted.noise > 1) {
    const RecordedSweep::Round& other = recorded_.rounds[Any(recorded_.rounds.size())];
    const double sign = Any(2) ? 1 : -1;
    score += OwnNoise(planted.noise) * sign * (other.baseline_again - other.baseline);
  }
  return score + planted.log_speed;
}

}  // namespace pinion::harness
