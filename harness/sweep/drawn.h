#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "harness/sweep/planted.h"
#include "harness/sweep/proposer.h"
#include "harness/sweep/protocol.h"
#include "harness/sweep/recording.h"
#include "harness/sweep/score.h"

// Sources of trials that are drawn from recorded numbers, with planted effects on top of them.

namespace pinion::harness {

// Planted candidates by their index: the log of the speed relative to the default's, and how many
// times the recorded noise.
struct PlantedCandidate {
  double log_speed = 0, noise = 1;
};
std::vector<PlantedCandidate> CandidatesOf(const Planted& planted);

// Trials of any source, some of which fail or are disturbed as `planted` says.
class DrawnSource : public TrialSource {
 public:
  DrawnSource(const Planted& planted, uint64_t seed, Proposer* proposer);

  Result<std::vector<int>> Propose(int round, const ProposalQuestion& question) override;
  Result<std::optional<TrialRow>> Run(const Slot& slot, int position,
                                      const ProgressLine& line) override;
  const std::map<Slot, TrialRow>& Stored() const override { return nothing_; }

 protected:
  // One trial that nobody disturbs.
  struct Draw {
    double log_score = 0, log_latency_score = 0, seconds = 0;
    double most_seconds = std::numeric_limits<double>::infinity();  // its limit
  };
  virtual Draw Next(const Slot& slot) = 0;
  size_t Any(size_t of) { return random_() % of; }  // the bias of modulo: of / 2^64

  const Planted& planted_;
  const std::vector<PlantedCandidate> candidates_;
  std::mt19937_64 random_;

 private:
  Proposer* proposer_;  // of the strategies that need one
  std::map<Slot, TrialRow> nothing_;
};

// The rows of a series, one a trial, from a random one on.
class SeriesSource : public DrawnSource {
 public:
  SeriesSource(const Recording& recording, const Planted& planted, uint64_t seed,
               Proposer* proposer);
  size_t offset() const { return offset_; }

 private:
  Draw Next(const Slot& slot) override;
  double SpeedAt(size_t row, size_t candidate) const;

  const std::vector<double>& noise_;
  double middle_;
  size_t offset_, row_;
};

// The rounds of a sweep, whole ones drawn at random.
class SweepSource : public DrawnSource {
 public:
  SweepSource(const RecordedSweep& recorded, const Planted& planted, uint64_t seed,
              Proposer* proposer);
  size_t offset() const { return 0; }  // rounds are drawn of no series

 private:
  using Rounds = std::map<RoundKey, size_t>;  // drawn for each

  Draw Next(const Slot& slot) override;
  double ScoreOf(const Slot& slot, Rounds& rounds);

  const RecordedSweep& recorded_;
  Rounds rounds_, latency_rounds_;
};

}  // namespace pinion::harness
