#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"

// What was measured before, as replays take it: one machine's noise, or a whole sweep.

namespace pinion::harness {

// A series of measurements of one machine while nothing of ours changed, as log speeds.
struct Recording {
  std::vector<double> log_speeds;
};

// One column of a CSV file with a header. Metrics that are known to be better when smaller are
// turned round. Errors name the file, the columns that are there, or the row that is no number
// above 0.
Result<Recording> ReadRecording(const std::string& path, const std::string& column);

// A sweep in one of its objectives, round by round.
struct RecordedSweep {
  struct Contestant {
    std::string name;
    std::vector<double> log_ratios;  // to the baseline, of all rounds that it was measured in
    std::vector<double> seconds;     // that its trials took
  };
  // Of the race, with both runs of the baseline.
  struct Round {
    double baseline = 0, baseline_again = 0;  // log scores
    std::map<size_t, double> scores;          // by contestant
  };
  std::vector<Contestant> contestants;  // [0] is the baseline; whoever failed is not among them
  std::vector<Round> rounds;
};

// A sweep's own database; of its first objective, or the one that `objective` names. Errors: fewer
// than two whole rounds, or nobody measured beside the baseline.
Result<RecordedSweep> ReadRecordedSweep(const std::string& database,
                                        const std::optional<std::string>& objective);

}  // namespace pinion::harness
