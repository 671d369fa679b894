#include "engine/decoder/micro_batches.h"

#include <algorithm>
#include <cstdint>

#include "kernels/kernels.h"

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
StepBatch PartOf(const StepBatch& batch, size_t first, size_t end) {
  StepBatch part;
  part.is_part = true;
  part.place.row = first;
  const auto rows = [&](const std::vector<int32_t>& all) {
    if (all.empty()) return all;
    return std::vector<int32_t>(all.begin() + static_cast<ptrdiff_t>(first),
                                all.begin() + static_cast<ptrdiff_t>(end));
  };
  part.tokens = rows(batch.tokens);
  part.types = rows(batch.types);
  for (const StepBatch::Slice& slice : batch.slices) {
    const size_t from = std::max(first, slice.first_row), behind = slice.first_row + slice.rows;
    if (behind <= first) ++part.place.slice;
    if (from < std::min(end, behind))
      part.slices.push_back(CutSlice(slice, from, std::min(end, behind), first));
  }
  for (const int32_t row : batch.logit_rows) {
    if (static_cast<size_t>(row) < first) ++part.place.logit;
    if (static_cast<size_t>(row) >= first && static_cast<size_t>(row) < end)
      part.logit_rows.push_back(row - static_cast<int32_t>(first));
  }
  return part;
}

// The first place from row `end` on where the slice that holds the row before may be cut.
size_t NextCut(const StepBatch& batch, size_t end, size_t granule) {
  for (const StepBatch::Slice& slice : batch.slices) {
    if (slice.first_row + slice.rows < end) continue;
    const size_t over = (end - slice.first_row) % granule;
    const size_t left = slice.first_row + slice.rows - end;
    return end + std::min(left, over == 0 ? 0 : granule - over);
  }
  return end;
}

}  // namespace

std::vector<StepBatch> CutStep(const StepBatch& batch, size_t parts, size_t granule) {
  const size_t rows = batch.tokens.size();
  const size_t wanted = (rows + parts - 1) / parts;
  std::vector<StepBatch> cut;
  for (size_t first = 0; first < rows;) {
    const size_t end = NextCut(batch, std::min(rows, first + wanted), granule);
    cut.push_back(PartOf(batch, first, end));
    cut.back().place.part = cut.size() - 1;
    first = end;
  }
  return cut;
}

size_t CutGranule(const DecoderSpec& spec) {
  constexpr size_t kChunk = kernels::kDeltaChunk;
  static_assert(kChunk % kernels::kStateChunk == 0, "chunks of both kinds end there");
  static_assert(kChunk % kCutRows == 0, "attention's tiles end there");
  if (spec.bidirectional) return SIZE_MAX;
  const bool chunks =
      std::any_of(spec.layer_specs.begin(), spec.layer_specs.end(), [](const LayerSpec& layer) {
        return layer.mixer == MixerKind::kDeltaNet || HasMamba(layer.mixer);
      });
  return chunks ? kChunk : kCutRows;
}

}  // namespace pinion
