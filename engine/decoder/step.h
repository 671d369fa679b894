#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/spec/kv_tables.h"

namespace pinion {

// The block tables of a sequence, as many as the spec has (KvTables); null from there on.
using BlockTablePointers = std::array<const int32_t*, kMostKvTables>;

// The same blocks in so many tables. Right for a prompt that is computed in one step, as every
// layer reads what it has just written; layers of other tables overwrite it.
inline BlockTablePointers SameBlocks(size_t tables, const int32_t* blocks) {
  BlockTablePointers all = {};
  std::fill_n(all.begin(), tables, blocks);
  return all;
}

// Told, while a step computes, that the keys and values of the model's first `layers` layers are
// written, on all ranks; by thread 0 of rank 0, whose share of the work the others do meanwhile.
using LayerSink = std::function<void(size_t layers)>;

// The input of one pass of the decoder: consecutive tokens of some sequences, row after row.
struct StepBatch {
  struct Slice {
    size_t first_row = 0, rows = 0;
    // Of first_row; the cache holds everything before it. A bidirectional model computes a sequence
    // in one slice, from position 0 on.
    size_t first_position = 0;
    // Each for first_position + rows tokens. An entry is -1, or any number, if no token of the
    // slice sees its block.
    BlockTablePointers block_tables = {};
    // The place of the sequence's state in recurrent layers: a number of its own below the count of
    // sequences of Decoder::AllocateKv. A slice that begins at position 0 begins a new state.
    int32_t place = 0;
    // Other places of states, or -1: the one whose state the slice begins with (first_position is
    // not 0 then), and the one that gets a copy of the state behind it.
    int32_t begins_from = -1, keeps_in = -1;
  };
  std::vector<int32_t> tokens;  // [rows]
  std::vector<int32_t> types;   // [rows], below the spec's token_types; empty: all 0
  std::vector<Slice> slices;    // their rows follow one another
  // Ascending: the rows whose logits are wanted, or last hidden states if the model has no head.
  std::vector<int32_t> logit_rows;
  // Parts that the stages of a pipeline compute at the same time (CutStep).
  size_t parts = 1;
  // Of such a part: its number, and its first row, slice and wanted row in the step.
  struct Place {
    size_t part = 0, row = 0, slice = 0, logit = 0;
  };
  Place place;
  bool is_part = false;                // even if it is the only one
  const LayerSink* written = nullptr;  // null: not called

  static constexpr size_t kUsualParts = 4;
  // By how many times more finely work is divided than the step needs if it is not cut: the threads
  // finish a part before they begin the next, and most steps that are cut at all have up to
  // kUsualParts.
  size_t finer() const { return is_part ? kUsualParts : 1; }

  void Clear() {
    tokens.clear();
    types.clear();
    slices.clear();
    logit_rows.clear();
    parts = 1;
    place = {};
    is_part = false;
    written = nullptr;
  }
};

// A sequence is cut into parts of a step only behind multiples of so many of its rows.
inline constexpr size_t kCutRows = 16;

}  // namespace pinion
