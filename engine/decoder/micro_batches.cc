#include "engine/decoder/micro_batches.h"

#include <algorithm>

namespace pinion {
namespace {

// Rows [first, end) of the slice, of which the first row of its part is number `part_row`.
StepBatch::Slice CutSlice(const StepBatch::Slice& slice, size_t first, size_t end,
                          size_t part_row) {
  StepBatch::Slice cut = slice;
  const size_t skipped = first - slice.first_row;
  cut.first_row = first - part_row;
  cut.rows = end - first;
  cut.first_position = slice.first_position + skipped;
  if (skipped > 0) cut.begins_from = -1;
  if (end < slice.first_row + slice.rows) cut.keeps_in = -1;
  return cut;
}

// Rows [first, end) of the step.
MicroBatch PartOf(const StepBatch& batch, size_t first, size_t end) {
  MicroBatch part;
  part.first_row = first;
  const auto rows = [&](const std::vector<int32_t>& all) {
    if (all.empty()) return all;
    return std::vector<int32_t>(all.begin() + static_cast<ptrdiff_t>(first),
                                all.begin() + static_cast<ptrdiff_t>(end));
  };
  part.batch.tokens = rows(batch.tokens);
  part.batch.types = rows(batch.types);
  for (const StepBatch::Slice& slice : batch.slices) {
    const size_t from = std::max(first, slice.first_row);
    const size_t to = std::min(end, slice.first_row + slice.rows);
    if (from < to) part.batch.slices.push_back(CutSlice(slice, from, to, first));
  }
  for (const int32_t row : batch.logit_rows) {
    if (static_cast<size_t>(row) < first) ++part.first_logit;
    if (static_cast<size_t>(row) >= first && static_cast<size_t>(row) < end)
      part.batch.logit_rows.push_back(row - static_cast<int32_t>(first));
  }
  return part;
}

// The end of the slice that holds the row before `end`.
size_t EndOfSlice(const StepBatch& batch, size_t end) {
  for (const StepBatch::Slice& slice : batch.slices)
    if (slice.first_row + slice.rows >= end) return slice.first_row + slice.rows;
  return end;
}

}  // namespace

std::vector<MicroBatch> CutStep(const StepBatch& batch, size_t parts, bool whole) {
  const size_t rows = batch.tokens.size();
  const size_t wanted = (rows + parts - 1) / parts;
  std::vector<MicroBatch> cut;
  for (size_t first = 0; first < rows;) {
    size_t end = std::min(rows, first + wanted);
    if (whole) end = EndOfSlice(batch, end);
    cut.push_back(PartOf(batch, first, end));
    first = end;
  }
  return cut;
}

}  // namespace pinion
