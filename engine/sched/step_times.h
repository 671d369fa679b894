#pragma once

#include <cstddef>

namespace pinion {

// The work of one step, as far as its time depends on it.
struct StepLoad {
  size_t rows = 0, logit_rows = 0;
  double attention = 0;  // in whatever unit the StepTimes that fills it counts
};

// Predicts how long steps take, and learns from those that ran.
// Thread rule: one thread.
class StepTimes {
 public:
  virtual ~StepTimes() = default;
  // Adds rows [first, first + rows) of one sequence; `logits`: the last of them is sampled from.
  virtual void Add(StepLoad& load, size_t first, size_t rows, bool logits) const = 0;
  // Never falls with more rows.
  virtual double Seconds(const StepLoad& load) const = 0;
  // >= 1: by how much steps of late took longer than predicted; plans aim at bound / Margin().
  virtual double Margin() const = 0;
  // Rows [first, first + rows) of one prompt in steps of their own, at full speed.
  virtual double PrefillSeconds(size_t first, size_t rows) const = 0;
  // Chunks of a prompt are cut to multiples of this many rows...
  virtual size_t granule() const = 0;
  // ...and not below this many, if the bound allows: there prefill runs near full speed. A mixture
  // needs many, since each expert's weights are read for few of them.
  virtual size_t full_speed_rows() const = 0;
  virtual void Observe(const StepLoad& load, double seconds) = 0;
};

// The longest that a step may take: per_decode times its decodes' own time, kept within
// [least_s, most_s]. 0: no bound. If full speed takes longer than most_s, so may the step, but at
// most slow_s beside decodes and slow_alone_s without them; unset: they change nothing.
struct StepBound {
  double least_s = 0, most_s = 0, per_decode = 0;
  double slow_s = 0, slow_alone_s = 0;
};

}  // namespace pinion
