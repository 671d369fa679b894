#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/sample/params.h"
#include "engine/sample/sampled_token.h"

namespace pinion {

// The use that the caller has for a row of a step. Logits are the model's, with the spec's
// multiplier and cap (logit_multiplier, logit_soft_cap); temperature, penalties and masks are a
// sampler's.
enum class RowUse : uint8_t {
  kToken,   // its logits choose the sequence's next token
  kRating,  // its logits say how likely a given token was
  kItself   // handed to StepCaller::Take: logits or, without a head, the state behind the last norm
};

struct WantedRow {
  int32_t row = 0;  // of the step
  RowUse use = RowUse::kItself;
  uint64_t sequence = 0;     // kToken: whose token it is
  bool constrained = false;  // kToken: among those that a grammar allows (StepCaller::Mask)
  // kToken: the forced tokens behind the sequence's last chosen one. They count as if chosen.
  std::vector<int32_t> jumped = {};
  int32_t given = 0;  // kRating: the token
  int32_t best = 0;   // kRating: how many of the best tokens to report beside it
};

// How to choose a sequence's tokens, from its first one on. `prompt` counts towards a repetition
// penalty.
struct SamplingRequest {
  uint64_t sequence = 0;
  SamplingParams params;
  uint64_t seed = 0;
  std::vector<int32_t> eos_ids, prompt;
};

// The input of a step: consecutive tokens of some sequences, row after row; at least one slice, and
// at most DecoderOptions::max_rows rows. Plain data: it may be sent to another process or to a
// device.
struct StepInput {
  struct Slice {
    size_t first_row = 0, rows = 0;
    // Of first_row; the cache holds everything before it. A bidirectional model computes a sequence
    // in one slice, from position 0 on.
    size_t first_position = 0;
    // One for each table of the spec (KvTables; KvPlaceOf tells which a layer uses), for
    // first_position + rows tokens. All tables take blocks from one pool, numbered from 0 to
    // KvRoom::blocks - 1. An entry is -1, or any number, if no token of the slice sees its block.
    std::vector<std::vector<int32_t>> block_tables = {};
    // The place of the sequence's state in recurrent layers: its own, below KvRoom::places. A
    // slice that begins at position 0 begins a new state.
    int32_t place = 0;
    // Other places of states, or -1: the one whose state the slice begins with (first_position is
    // not 0 then), and the one that gets a copy of the state after it.
    int32_t begins_from = -1, keeps_in = -1;
  };
  std::vector<int32_t> tokens;    // [rows], within the vocabulary
  std::vector<int32_t> types;     // [rows], below the spec's token_types; empty: all 0
  std::vector<Slice> slices;      // their rows follow one another
  std::vector<WantedRow> wanted;  // their rows ascend
  // Sequences whose tokens are not chosen any more, and those whose first is chosen in this step.
  // The former come first: a number may be in both.
  std::vector<uint64_t> ended;
  std::vector<SamplingRequest> begun;
  // Into how many parts to cut the rows for stages of layers, which compute them at the same time;
  // all processes cut alike. An executor without stages ignores it.
  size_t parts = 1;
  // Some of its blocks are for another engine: StepCaller::Written.
  bool hands_over = false;
};

// The result of a step.
struct StepOutput {
  // [wanted]: the tokens that were chosen or rated, or SampledToken::kNoMask or kNotFinite; of a
  // row that is wanted itself, anything.
  std::vector<SampledToken> tokens;
};

}  // namespace pinion
