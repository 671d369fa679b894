#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/decoder/step.h"
#include "engine/spec/attention_spec.h"
#include "engine/weights/shard.h"
#include "kernels/kernels.h"

namespace pinion {

// A row that chooses the tokens it sees (Reach::Chooses); of a part of a step if that is cut.
struct ChoosingRow {
  uint32_t slice, row, position;
};

// A rank's buffers for an indexer. Rows as in Workspace.
struct IndexBuffers {
  float* projected = nullptr;    // [rows][projected_stride]: a key, then the heads' weights
  float* queries = nullptr;      // [rows][queries_stride]: of each head
  std::byte* rounded = nullptr;  // [rows][heads][dim padded], activation type
  size_t projected_stride = 0, queries_stride = 0, row_bytes = 0;  // row_bytes: of rounded

  // Of the rows that choose, kIndexRows at a time.
  std::vector<float> scores;    // [kIndexRows][scores_stride], by position
  std::vector<int32_t> chosen;  // [kIndexRows][top_k] positions, ascending
  std::vector<float> parts;     // of PartFloats each: [kIndexRows][cuts][groups]
  size_t scores_stride = 0, cuts = 1, cut_tokens = 0;
  std::vector<int32_t> own_blocks;  // 0, 1, 2, ...: the block table of gathered tokens

  // Finds the rows, and makes room for them. step: its parts (CutStep), or one that is not cut.
  // cut_tokens and cuts: a row's chosen tokens are cut into so many pieces of at most so many, so
  // that few rows keep all threads busy.
  void Plan(std::span<const StepBatch> step, const Shard& shard, const Reach& reach, size_t threads,
            size_t block_tokens, size_t part_floats);
  std::span<const ChoosingRow> RowsOf(size_t part) const {
    return std::span(rows).subspan(begins[part], begins[part + 1] - begins[part]);
  }

  std::vector<ChoosingRow> rows;  // of all parts
  std::vector<size_t> begins;     // [parts + 1]: those of a part
};

// Rows that are scored together: bounds the scores (16 rows of 128k tokens: 8 MiB).
inline constexpr size_t kIndexRows = 16;

}  // namespace pinion
