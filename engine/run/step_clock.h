#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/decoder/cost.h"
#include "engine/run/options.h"
#include "engine/run/step_samples.h"
#include "engine/sched/step_times.h"

namespace pinion {

// Step times from two things that are measured: a curve over the rows of a step, for products with
// weights, and the time of a unit of attention, which the cost model counts. The first steps of the
// process give both roughly, and every later step corrects them.
class MeasuredStepTimes : public StepTimes {
 public:
  // tiles: products run on matrix tiles, which want more rows than vectors do.
  MeasuredStepTimes(const CostModel& cost, bool tiles);

  void Add(StepLoad& load, size_t first, size_t rows, bool logits) const override;
  double Seconds(const StepLoad& load) const override;
  double Margin() const override;
  double PrefillSeconds(size_t first, size_t rows) const override;
  size_t granule() const override { return tiles_ ? 32 : 16; }
  size_t full_speed_rows() const override;
  void Observe(const StepLoad& load, double seconds) override;

  // Begins the curve with prompts of so many rows, each alone in a step, that took so long; rows
  // ascending. Beyond the last, time is proportional to rows, and to the experts that they read.
  void Start(const std::vector<StepSample>& samples);

  Json ToJson() const;  // {"rows":[],"seconds":[],"attention_seconds","margin"}: /server_info

 private:
  struct Point {
    double rows, seconds = 0;
    bool known = false;  // by a step of about so many rows; else from its neighbours
    int visits = 0;
  };
  // A place on the curve: between two points, so much nearer to the second.
  struct Place {
    size_t lower, upper;
    double weight;
  };
  double Rows(const StepLoad& load) const;  // rows and the head's work, as rows
  Place Find(double rows) const;
  double Curve(double rows) const;
  double Work(double rows) const;
  void Move(size_t point, double off, double nearness);
  void FillUnknown();
  void Straighten(size_t point);

  const CostModel cost_;
  const bool tiles_;
  double row_ops_;    // of a row without attention
  double head_rows_;  // the head's work for a row of logits, in rows
  std::array<Point, 10> points_;
  double attention_s_ = 0;  // of attention with as many operations as a row's products have
  double error_ = 0;        // |seen / predicted - 1|, of the last steps
};

// The bound of steps under these options, of which so many are in flight: each has its share of
// the time for which a sequence may wait.
StepBound BoundOfSteps(const EngineOptions& options, size_t steps_in_flight = 1);
std::string Describe(const StepBound& bound);  // of one that is there

// The steps to time for the curve's beginning.
SampleChoice FirstSamples();

}  // namespace pinion
