#pragma once

// A scheduler whose steps take as long as a formula says, on a clock that the steps move.

#include <algorithm>
#include <cmath>
#include <map>

#include "scheduler_bench.h"

namespace pinion {

class HandClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns; }
  void SleepNs(int64_t ns) const override { now_ns += ns; }
  double seconds() const { return static_cast<double>(now_ns) * 1e-9; }
  mutable int64_t now_ns = 1'000'000'000;
};

// So much a row, whatever it sees.
class LinearTimes final : public StepTimes {
 public:
  explicit LinearTimes(double row_seconds = 0.005) : row_s(row_seconds) {}

  void Add(StepLoad& load, size_t, size_t rows, bool logits) const override {
    load.rows += rows;
    load.logit_rows += logits ? 1 : 0;
  }
  double Seconds(const StepLoad& load) const override {
    return static_cast<double>(load.rows) * row_s;
  }
  double Margin() const override { return margin; }
  double PrefillSeconds(size_t, size_t rows) const override {
    return static_cast<double>(rows) * row_s;
  }
  size_t granule() const override { return 16; }
  size_t full_speed_rows() const override { return full_speed; }
  void Observe(const StepLoad& load, double seconds) override {
    seen = load;
    seen_s = seconds;
  }

  double row_s, margin = 1;
  size_t full_speed = 16;
  StepLoad seen;  // the last
  double seen_s = 0;
};

struct TimedSetup {
  size_t blocks = 1000, block_tokens = 16, budget = 2048, seqs = 64, length = 8000;
  bool caching = false;
  StepBound bound = {0.1, 0.5, 8};
  size_t steps_in_flight = 1;
};

class TimedBench {
 public:
  explicit TimedBench(const TimedSetup& setup = {})
      : pool(setup.blocks, setup.block_tokens, setup.caching),
        scheduler(
            {setup.budget, setup.seqs, setup.length, setup.bound, {Reach{}}, setup.steps_in_flight},
            pool, &times, clock) {}

  // Prompts differ from each other unless `first` says otherwise.
  Sequence* Add(uint64_t id, size_t prompt, int max_tokens = 1, int priority = 0,
                uint64_t group = 0) {
    const uint64_t text = group ? group : id;
    auto sequence =
        Bench::Make(id, Prompt(prompt, static_cast<int32_t>(text) * 10'000), max_tokens);
    sequence->priority = priority;
    sequence->group = group;
    Sequence* raw = sequence.get();
    const Status added = scheduler.Add(std::move(sequence));
    EXPECT_TRUE(added) << added.error().message;
    return raw;
  }

  // So many sequences that decode, for as long as a test runs.
  void AddDecodes(uint64_t first_id, size_t count) {
    for (size_t i = 0; i < count; ++i) Add(first_id + i, 1, 5000);
    while (scheduler.stats().waiting > 0) Step();
    Step();
  }

  // One step, as long as predicted times `slowness`; returns the rows of each sequence.
  std::map<uint64_t, size_t> Step(double slowness = 1) {
    std::map<uint64_t, size_t> rows;
    std::vector<int32_t> sampled;
    size_t all = 0;
    for (const Slice& slice : scheduler.Schedule()) {
      EXPECT_TRUE(rows.emplace(slice.sequence->id, slice.count).second) << "computed twice";
      all += slice.count;
      if (slice.samples) sampled.push_back(7);
    }
    last_s = static_cast<double>(all) * times.row_s * slowness;
    clock.now_ns += std::llround(last_s * 1e9);
    for (auto& sequence : scheduler.Commit(sampled)) ended[sequence->id] = clock.seconds();
    return rows;
  }

  void StepUntilEnd(uint64_t id) {
    for (int step = 0; step < 10000 && !ended.contains(id); ++step) Step();
    ASSERT_TRUE(ended.contains(id)) << id;
  }

  LinearTimes times;
  HandClock clock;
  BlockPool pool;
  Scheduler scheduler;
  double last_s = 0;                 // of the last step
  std::map<uint64_t, double> ended;  // when each one did
};

}  // namespace pinion
