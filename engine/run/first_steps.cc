#include "engine/run/first_steps.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/strings.h"

namespace pinion {
namespace {

// The most rows of a step with one prompt.
size_t MostRows(const StartedModel& model, const DecoderOptions& options) {
  return std::min(
      {options.max_rows, model.info.max_model_len, model.info.blocks * model.info.block_tokens});
}

// One step with a prompt of so many rows, of which the last `wanted` are wanted.
void RunPrompt(StartedModel& model, size_t rows, size_t wanted) {
  const auto vocabulary = static_cast<size_t>(model.files.spec.vocabulary);
  std::vector<int32_t> blocks((rows + model.info.block_tokens - 1) / model.info.block_tokens);
  std::iota(blocks.begin(), blocks.end(), 0);
  StepInput input;
  input.slices = {{0, rows, 0, {model.info.kv_reaches.size(), blocks}, 0}};
  // Different tokens, so that they choose different experts.
  for (size_t i = 0; i < rows; ++i)
    input.tokens.push_back(static_cast<int32_t>(i * 7919 % vocabulary));
  for (size_t row = rows - wanted; row < rows; ++row)
    input.wanted.push_back({static_cast<int32_t>(row), RowUse::kItself});
  NoCaller nobody;
  model.executor->Begin(input);
  model.executor->Finish(nobody);
}

}  // namespace

bool WarmUp(StartedModel& model, const DecoderOptions& options) {
  struct NumberFinder final : StepCaller {
    std::span<const uint32_t> Mask(size_t) override { return {}; }
    void Take(size_t, const float* row, size_t width) override {
      found = std::any_of(row, row + width, [](float x) { return !std::isnan(x); });
    }
    bool found = false;
  } numbers;
  const EngineInfo& info = model.info;
  const size_t prefilled =
      std::min({size_t{4}, options.max_rows, options.block_tokens, info.max_model_len});
  const auto tables = [&](int32_t block) {
    return std::vector<std::vector<int32_t>>(info.kv_reaches.size(), {block});
  };
  StepInput input;
  input.slices = {{0, prefilled, 0, tables(0), 0}};
  const bool decodes = !model.files.spec.bidirectional && info.blocks > 1 &&
                       model.options.max_num_seqs > 1 && prefilled < options.max_rows;
  if (decodes) input.slices.push_back({prefilled, 1, prefilled - 1, tables(1), 1});
  input.tokens.assign(input.slices.back().first_row + input.slices.back().rows, 0);
  input.wanted = {{0, RowUse::kItself}};
  model.executor->Begin(input);
  model.executor->Finish(numbers);
  return numbers.found;
}

void TimeCut(StartedModel& model, const DecoderOptions& options, Stages& stages) {
  const auto count = static_cast<size_t>(model.options.pipeline_parallel);
  if (count == 1) return;
  // As decodes, of which each row is wanted: the last stage's head then takes its time.
  auto samples = TimeSamples(
      PartSamples(), MostRows(model, options), [&](size_t rows) { RunPrompt(model, rows, rows); },
      kMachineClock);
  if (samples.size() < 2) return;  // steps of next to no rows have no parts
  for (StepSample& sample : samples) sample.wanted = sample.rows;
  model.cut = StepCut(count, std::move(samples));
  stages.Done("step parts", model.cut.Describe());
}

void TimeSteps(StartedModel& model, const DecoderOptions& options, Stages& stages) {
  const StepBound bound = BoundOfSteps(model.options, model.steps_in_flight());
  // Texts that are embedded have no tokens to come that a long step would hold up.
  if (bound.most_s == 0 || model.info.task != ModelTask::kGenerate) return;
  std::vector<StepSample> samples = model.cut.AddedSamples(model.steps_in_flight());
  if (samples.empty())
    samples = TimeSamples(
        FirstSamples(), MostRows(model, options), [&](size_t rows) { RunPrompt(model, rows, 1); },
        kMachineClock);
  model.step_times = std::make_unique<MeasuredStepTimes>(
      CostModel(model.files.spec, options.formats, options.cached(),
                options.SharesOf(model.options.tensor_parallel)),
      model.isa == kernels::Isa::kAmx);
  model.step_times->Start(samples);
  std::vector<std::string> parts;
  for (const auto& [rows, seconds, wanted] : samples)
    parts.push_back(StrCat(rows, rows == 1 ? " row " : " rows ",
                           static_cast<int64_t>(std::lround(seconds * 1000)), " ms"));
  stages.Done("step times", StrCat(Join(parts, ", "), "; ", Describe(bound)));
}

}  // namespace pinion
