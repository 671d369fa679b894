#pragma once

// A device without a model and without teams, started by a row of the table of devices: everything
// that a step needs must come with its input.
//
// It shows the calls and is not a complete executor: it ignores states (places, and copies of
// them), masks, ratings, tokens that were jumped over, and all tables of blocks but the first; its
// model has none of them.

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/exec/step_wire.h"
#include "engine/run/device.h"

namespace pinion {

inline constexpr size_t kDeviceBlock = 16;
inline constexpr int32_t kDeviceTokens = 500;

// The token that follows others: it depends on each of them and its place.
inline int32_t NextToken(const std::vector<int32_t>& tokens) {
  uint32_t sum = 17;
  for (const int32_t token : tokens) sum = sum * 31 + static_cast<uint32_t>(token);
  return static_cast<int32_t>(3 + sum % (kDeviceTokens - 3));
}

// A device with memory of its own: it is sent bytes, and keeps tokens where keys and values would
// lie.
class BytesExecutor final : public Executor {
 public:
  explicit BytesExecutor(size_t steps_in_flight) : steps_in_flight_(steps_in_flight) {}
  ~BytesExecutor() override { EXPECT_TRUE(open_.empty()); }
  Status AllocateKv(const KvRoom&) override { return {}; }

  void Begin(const StepInput& sent) override {
    open_.push_back(DecodeStep(Encode(sent)).value());
    EXPECT_LE(open_.size(), steps_in_flight_);
    calls_ += 'B';
    if (on_begin_) on_begin_(open_.back());
  }
  StepOutput Finish(StepCaller& caller) override {
    const StepInput input = std::move(open_.front());
    open_.pop_front();
    calls_ += 'F';
    if (on_finish_) on_finish_();
    for (const uint64_t sequence : input.ended) EXPECT_EQ(sampling_.erase(sequence), 1u);
    for (const SamplingRequest& begun : input.begun)
      EXPECT_TRUE(sampling_.emplace(begun.sequence, begun.seed).second);
    for (const StepInput::Slice& slice : input.slices) {
      EXPECT_EQ(slice.block_tables.size(), 1u);
      for (size_t i = 0; i < slice.rows; ++i)
        At(slice, slice.first_position + i) = input.tokens[slice.first_row + i];
    }
    StepOutput output;
    output.tokens.resize(input.wanted.size());
    for (size_t i = 0; i < input.wanted.size(); ++i) {
      if (input.wanted[i].use == RowUse::kItself) {  // of the warm-up, or scored
        constexpr float kRow[] = {1};
        caller.Take(i, kRow, 1);
        continue;
      }
      EXPECT_TRUE(sampling_.contains(input.wanted[i].sequence));
      output.tokens[i].id = Choose(input, static_cast<size_t>(input.wanted[i].row));
    }
    return output;
  }
  ExecutorMemory memory() const override { return {}; }
  StepReads reads() const override { return {.expert_bytes = expert_bytes_}; }
  size_t steps_in_flight() const override { return steps_in_flight_; }

  std::map<uint64_t, uint64_t> sampling_;           // the seeds of those that sample
  std::string calls_;                               // B: a step has begun, F: the oldest has ended
  std::function<void(const StepInput&)> on_begin_;  // of each step
  std::function<void()> on_finish_;                 // of the oldest
  uint64_t expert_bytes_ = 0;                       // that steps have read

 private:
  int32_t& At(const StepInput::Slice& slice, size_t position) {
    const int32_t block = slice.block_tables[0].at(position / kDeviceBlock);
    return cache_[{block, position % kDeviceBlock}];
  }
  int32_t Choose(const StepInput& input, size_t row) {
    for (const StepInput::Slice& slice : input.slices) {
      if (row < slice.first_row || row >= slice.first_row + slice.rows) continue;
      std::vector<int32_t> seen;
      for (size_t at = 0; at <= slice.first_position + row - slice.first_row; ++at)
        seen.push_back(At(slice, at));
      return NextToken(seen);
    }
    ADD_FAILURE() << "row " << row << " is in no slice";
    return 0;
  }

  const size_t steps_in_flight_;
  std::deque<StepInput> open_;
  std::map<std::pair<int32_t, size_t>, int32_t> cache_;
};

inline BytesExecutor* g_executor = nullptr;  // the one that was loaded last

// The functions that another device needs for a start.
class BytesDevice final : public Device {
 public:
  Status Prepare(StartedModel& model, Stages&) override {
    if (model.world) return Fail(ErrorCode::kUnsupported, "its ranks are all in one process");
    model.info.plan.ranks.resize(static_cast<size_t>(model.options.ranks()));
    model.info.threads = 1;
    model.info.isa = "bytes";
    return {};
  }
  Result<std::vector<RankNeeds>> CheckMemory(StartedModel& model, const DecoderOptions& options,
                                             Stages&) override {
    return NeedsHere(model, options);
  }
  Result<std::unique_ptr<Executor>> Load(StartedModel&, const DecoderOptions&,
                                         std::shared_ptr<const TensorSource>) override {
    auto executor = std::make_unique<BytesExecutor>(steps_in_flight);
    g_executor = executor.get();
    return std::unique_ptr<Executor>(std::move(executor));
  }
  uint64_t FreeForCache(const StartedModel&) override { return free_bytes; }

  static inline uint64_t free_bytes = 0;
  static inline size_t steps_in_flight = 1;
};

inline constexpr DeviceRow kDevices[] = {
    {"other", [] { return std::unique_ptr<Device>(); }},
    {"bytes", [] { return std::unique_ptr<Device>(new BytesDevice); }},
};

inline EngineOptions OnBytes() {
  EngineOptions options;
  options.model = "preset:tiny";
  options.device = "bytes";
  options.dtype = "float32";
  options.block_size = kDeviceBlock;
  options.max_num_seqs = 6;
  options.max_num_batched_tokens = 24;
  options.max_model_len = 96;
  return options;
}

// Started with a cache of so many blocks: half of what is free.
inline StartedModel StartOnDevice(const EngineOptions& options, uint64_t blocks,
                                  size_t steps_in_flight) {
  BytesDevice::steps_in_flight = steps_in_flight;
  const auto needs = NeedsFor(options, PlanModel(options).value()).value();
  BytesDevice::free_bytes = 2 * blocks * LargestBlockBytes(needs);
  return StartModel(options, kDevices).value();
}

inline std::unique_ptr<Engine> OnDevice(uint64_t blocks, size_t steps_in_flight = 1) {
  return MakeEngine(StartOnDevice(OnBytes(), blocks, steps_in_flight), {}).value();
}

inline void AddTo(Engine& engine, uint64_t id, int most) {
  Request request;
  request.id = id;
  request.prompt_ids = {5, 6, 7, static_cast<int32_t>(10 + id)};
  request.params.max_tokens = most;
  request.params.ignore_eos = true;
  ASSERT_TRUE(engine.Add(std::move(request)));
}

}  // namespace pinion
