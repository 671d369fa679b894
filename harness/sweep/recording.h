#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"

// Recorded measurements for replays: one machine's noise, or a whole sweep.

namespace pinion::harness {

// Repeated measurements of the same configuration on one machine, as log speeds.
struct Recording {
  std::vector<double> log_speeds;
};

// Reads one column of a CSV file with a header. Metrics that are better when smaller are
// inverted. Errors name the file, the columns that it has, or the row that is not a number
// above 0.
Result<Recording> ReadRecording(const std::string& path, const std::string& column);

// A sweep in one of its objectives, by round.
struct RecordedSweep {
  struct Contestant {
    std::string name;
    std::vector<double> log_ratios;  // to the baseline, of all rounds that have it
    std::vector<double> seconds;     // of its trials
  };
  // A round of the race, with both trials of the baseline.
  struct Round {
    double baseline = 0, baseline_again = 0;  // log scores
    std::map<size_t, double> scores;          // by contestant
  };
  std::vector<Contestant> contestants;  // [0] is the baseline; without candidates that failed
  std::vector<Round> rounds;
};

// Reads a sweep's database, in its first objective or the one that `objective` names. Errors: fewer
// than two whole rounds, or no candidate besides the baseline.
Result<RecordedSweep> ReadRecordedSweep(const std::string& database,
                                        const std::optional<std::string>& objective);

}  // namespace pinion::harness
