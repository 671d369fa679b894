#include "engine/run/step_cut.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

// With 4 parts for each stage, filling and emptying the pipeline takes a fifth of a step or less.
constexpr size_t kMostPartsPerStage = 4;

// Stages that compute at the same time may share a memory that each had for itself when it was
// measured: a gain that is less than this in theory may be none.
constexpr double kLeastGain = 0.05;
// Of cuts that are as good as the best, the one with the fewest parts: each costs the link a call.
constexpr double kTie = 0.01;

// Parts of twice the rows of the longest sample, and more, are guesses: a disturbed sample would
// keep long prompts whole. On all CPUs measured so many rows are bound by arithmetic, so that they
// are always cut into parts of at least this many.
constexpr size_t kLongPartRows = 128;

}  // namespace

StepCut::StepCut(size_t stages, std::vector<StepSample> samples)
    : stages_(stages), samples_(std::move(samples)) {
  CHECK(samples_.size() >= 2) << samples_.size();
  // More rows never take less time: a sample that says so was disturbed.
  for (size_t i = samples_.size() - 1; i > 0; --i)
    samples_[i - 1].seconds = std::min(samples_[i - 1].seconds, samples_[i].seconds);
}

// On the line between the samples beside it; beyond the last, on that of the last two.
double StepCut::Seconds(double rows) const {
  size_t upper = 1;
  while (upper + 1 < samples_.size() && static_cast<double>(samples_[upper].rows) < rows) ++upper;
  const StepSample &from = samples_[upper - 1], &to = samples_[upper];
  const double each = (to.seconds - from.seconds) / static_cast<double>(to.rows - from.rows);
  return from.seconds + each * std::max(0.0, rows - static_cast<double>(from.rows));
}

double StepCut::StageSeconds(size_t rows, size_t parts) const {
  const size_t largest = (rows + parts - 1) / parts;
  return static_cast<double>(parts + stages_ - 1) * Seconds(static_cast<double>(largest));
}

std::vector<StepSample> StepCut::AddedSamples(size_t steps_in_flight) const {
  std::vector<StepSample> added = samples_;
  for (StepSample& sample : added) sample.seconds /= static_cast<double>(steps_in_flight);
  return added;
}

size_t StepCut::Parts(size_t rows) const {
  if (stages_ == 1 || rows == 0) return 1;
  const auto seconds = [&](size_t parts) { return StageSeconds(rows, parts); };
  const size_t most = std::min(rows, kMostPartsPerStage * stages_);
  double least = seconds(1);
  for (size_t parts = 2; parts <= most; ++parts) least = std::min(least, seconds(parts));
  const size_t fewest = std::clamp<size_t>(rows / kLongPartRows, 1, most);
  if (least > (1 - kLeastGain) * seconds(1)) return fewest;
  size_t parts = 2;
  while (seconds(parts) > (1 + kTie) * least) ++parts;
  return std::max(parts, fewest);
}

std::string StepCut::Describe() const {
  std::vector<std::string> parts;
  for (const auto& [rows, seconds, wanted] : samples_)
    parts.push_back(StrCat(rows, rows == 1 ? " row " : " rows ",
                           static_cast<double>(std::lround(seconds * 1e5)) / 100, " ms"));
  std::vector<std::string> cuts;
  for (const size_t rows : {16, 64, 256}) cuts.push_back(StrCat(rows, " rows into ", Parts(rows)));
  return StrCat(Join(parts, ", "), "; parts of a step with prompts: ", Join(cuts, ", "));
}

SampleChoice PartSamples() { return {.rows = {1, 4, 8, 16, 32, 64}, .runs = 2}; }

}  // namespace pinion
