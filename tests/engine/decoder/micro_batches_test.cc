#include "engine/decoder/micro_batches.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>

#include "tests/engine/decoder/loaded.h"

namespace pinion {
namespace {

// Slices of these lengths; sequence i begins at position 10 * i.
StepBatch StepOf(const std::vector<size_t>& lengths) {
  static const int32_t table[100] = {};
  StepBatch batch;
  for (size_t i = 0; i < lengths.size(); ++i)
    batch.slices.push_back(
        {batch.slices.empty() ? 0 : batch.slices.back().first_row + batch.slices.back().rows,
         lengths[i],
         10 * i,
         {table + i},
         static_cast<int32_t>(i)});
  const size_t rows = batch.slices.back().first_row + batch.slices.back().rows;
  batch.tokens.resize(rows);
  std::iota(batch.tokens.begin(), batch.tokens.end(), 0);
  return batch;
}

// Put together again, the parts are the step: every row once, in order, at its own position.
void ExpectWhole(const StepBatch& batch, const std::vector<StepBatch>& parts) {
  std::vector<int32_t> tokens, logit_rows;
  std::vector<size_t> positions;
  for (const StepBatch& part : parts) {
    EXPECT_TRUE(part.is_part);
    EXPECT_EQ(&parts[part.place.part], &part);
    EXPECT_EQ(part.place.row, tokens.size());
    EXPECT_EQ(part.place.logit, logit_rows.size());
    EXPECT_EQ(batch.slices[part.place.slice].place, part.slices[0].place);
    size_t row = 0;
    for (const StepBatch::Slice& slice : part.slices) {
      EXPECT_EQ(slice.first_row, row);
      EXPECT_GT(slice.rows, 0u);
      for (size_t i = 0; i < slice.rows; ++i)
        positions.push_back(1000 * static_cast<size_t>(slice.place) + slice.first_position + i);
      row += slice.rows;
    }
    EXPECT_EQ(row, part.tokens.size());
    tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
    for (const int32_t wanted : part.logit_rows)
      logit_rows.push_back(wanted + static_cast<int32_t>(part.place.row));
  }
  std::vector<size_t> wanted;
  for (const StepBatch::Slice& slice : batch.slices)
    for (size_t i = 0; i < slice.rows; ++i)
      wanted.push_back(1000 * static_cast<size_t>(slice.place) + slice.first_position + i);
  EXPECT_EQ(tokens, batch.tokens);
  EXPECT_EQ(positions, wanted);
  EXPECT_EQ(logit_rows, batch.logit_rows);
}

TEST(CutStep, PartsAreTheStep) {
  for (const auto& lengths : std::vector<std::vector<size_t>>{
           {1}, {127}, {300}, {1000}, {1, 1, 1, 500}, {200, 1, 200}, {2048}})
    for (const size_t parts : {1u, 2u, 3u, 8u}) {
      StepBatch batch = StepOf(lengths);
      batch.logit_rows = {0, static_cast<int32_t>(batch.tokens.size() / 2),
                          static_cast<int32_t>(batch.tokens.size()) - 1};
      if (batch.tokens.size() == 1) batch.logit_rows = {0};
      ExpectWhole(batch, CutStep(batch, parts, 1));
      ExpectWhole(batch, CutStep(batch, parts, SIZE_MAX));
    }
}

TEST(CutStep, MakesAsManyPartsAsAreAskedForButNoneWithoutRows) {
  EXPECT_EQ(CutStep(StepOf({255}), 1, 1).size(), 1u);
  EXPECT_EQ(CutStep(StepOf({256}), 2, 1).size(), 2u);
  EXPECT_EQ(CutStep(StepOf({2048}), 8, 1).size(), 8u);
  EXPECT_EQ(CutStep(StepOf({1, 1, 1}), 2, 1).size(), 2u) << "decodes as well";
  EXPECT_EQ(CutStep(StepOf({1, 1, 1}), 8, 1).size(), 3u);
}

TEST(CutStep, TextsThatMustBeComputedWholeAre) {
  const StepBatch batch = StepOf({300, 10, 300, 300});
  const auto parts = CutStep(batch, 2, SIZE_MAX);
  EXPECT_GT(parts.size(), 1u);
  for (const StepBatch& part : parts)
    for (const StepBatch::Slice& slice : part.slices)
      EXPECT_EQ(slice.rows, batch.slices[static_cast<size_t>(slice.place)].rows);
}

// The second sequence's chunks begin at its own first row.
TEST(CutStep, ChunksOfStatesStayWhole) {
  const StepBatch batch = StepOf({100, 300, 1, 1});
  for (const size_t count : {2u, 3u, 8u}) {
    const auto parts = CutStep(batch, count, 64);
    ExpectWhole(batch, parts);
    EXPECT_GT(parts.size(), 1u);
    for (const StepBatch& part : parts)
      for (const StepBatch::Slice& slice : part.slices) {
        const auto sequence = static_cast<size_t>(slice.place);
        EXPECT_EQ((slice.first_position - batch.slices[sequence].first_position) % 64, 0u);
      }
  }
}

TEST(CutStep, AModelsStatesDecideItsPlacesForCuts) {
  const auto granule = [](const char* model) {
    return CutGranule(FindModel(testing::ModelFolder(model)).value().spec);
  };
  EXPECT_EQ(granule("llama"), kCutRows);
  EXPECT_EQ(granule("lfm2"), kCutRows) << "convolutions compute row by row";
  EXPECT_EQ(granule("qwen3.5-text"), 64u);
  EXPECT_EQ(granule("granite4-dense"), 64u);
  DecoderSpec encoder;
  encoder.bidirectional = true;
  EXPECT_EQ(CutGranule(encoder), SIZE_MAX);
}

TEST(CutStep, StatesAreTakenByTheFirstPartAndLeftByTheLast) {
  StepBatch batch = StepOf({512});
  batch.slices[0].begins_from = 8;
  batch.slices[0].keeps_in = 9;
  const auto parts = CutStep(batch, 4, 1);
  ASSERT_EQ(parts.size(), 4u);
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].slices[0].begins_from, i == 0 ? 8 : -1);
    EXPECT_EQ(parts[i].slices[0].keeps_in, i == 3 ? 9 : -1);
  }
}

TEST(CutStep, TypesGoWithTheirTokens) {
  StepBatch batch = StepOf({512});
  for (size_t i = 0; i < 512; ++i) batch.types.push_back(static_cast<int32_t>(i % 2));
  for (const StepBatch& part : CutStep(batch, 2, 1)) {
    ASSERT_EQ(part.types.size(), part.tokens.size());
    for (size_t i = 0; i < part.types.size(); ++i) EXPECT_EQ(part.types[i], part.tokens[i] % 2);
  }
}

}  // namespace
}  // namespace pinion
