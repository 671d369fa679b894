#include "engine/run/step_samples.h"

#include <algorithm>
#include <cstdint>

namespace pinion {
namespace {

// After a step as long as this, longer ones are not worth the delay of the start: every later step
// corrects what follows from the samples. Those of up to so many rows are timed anyway, or nothing
// would show what rows cost.
constexpr double kLongStepSeconds = 0.25;
constexpr size_t kTellingRows = 16;

// If 16 rows take this many times as long as one, computing them takes longer than reading the
// weights: from there on time is proportional to rows, and a longer step says nothing new.
constexpr double kComputeBound = 1.25;

double SecondsOf(size_t rows, const std::function<void(size_t)>& run, const Clock& clock) {
  const int64_t began_ns = clock.NowNs();
  run(rows);
  return std::max(1e-6, static_cast<double>(clock.NowNs() - began_ns) * 1e-9);
}

}  // namespace

std::vector<StepSample> TimeSamples(const SampleChoice& choice, size_t most_rows,
                                    const std::function<void(size_t)>& run, const Clock& clock) {
  std::vector<StepSample> samples;
  for (const size_t rows : choice.rows) {
    if (rows > most_rows) break;
    const double last_s = samples.empty() ? 0 : samples.back().seconds;
    const bool is_long = last_s > kLongStepSeconds;
    const bool rows_count = choice.until_rows_count && !samples.empty() &&
                            last_s > kComputeBound * samples.front().seconds;
    if (rows > kTellingRows && (is_long || rows_count)) break;
    double least_s = SecondsOf(rows, run, clock);
    for (int i = 1; i < choice.runs && !is_long; ++i)
      least_s = std::min(least_s, SecondsOf(rows, run, clock));
    samples.push_back({rows, least_s});
  }
  return samples;
}

}  // namespace pinion
