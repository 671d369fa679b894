#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/kv/block_pool.h"
#include "engine/kv/block_tables.h"
#include "engine/sample/params.h"

namespace pinion {

enum class FinishReason { kNone, kStop, kLength, kAborted };
const char* Name(FinishReason reason);  // "stop", "length", "abort"; "" for kNone

// One request inside the engine: its tokens, how many of them are computed, its KV blocks.
struct Sequence {
  uint64_t id = 0;
  std::vector<int32_t> tokens;  // prompt, then output
  size_t prompt_tokens = 0;
  SamplingParams params;
  bool sampling = false;  // its first token has been asked for
  // How many of its last tokens its grammar forced to follow the one that was chosen last; set by
  // the scheduler. With that one they are computed about as quickly as a single token.
  size_t jumped = 0;
  size_t most_jumped = 0;  // most tokens of one step, the chosen one among them; 0: none ever jumps
  std::vector<int32_t> eos_ids;
  int priority = 0;     // lower goes first
  uint64_t group = 0;   // of the choices of one prompt, which share it; 0: none
  uint64_t number = 0;  // in order of arrival; set by the scheduler
  double served_s = 0;  // predicted time of the prefill it has had; set by the scheduler
  // Of the masks of its grammar, with which its end of sequence always ends it; -1: it has none.
  int32_t mask_row = -1;
  bool score = false;  // yields the logits of every position; no output, no use of the prefix cache
  bool pool = false;   // beside score: yields one vector instead
  bool whole = false;  // is computed in a single step: its tokens see those behind them
  std::vector<int32_t> types;  // of its tokens, or nothing

  size_t computed = 0;         // tokens whose KV is in the cache, as far as later ones see it
  BlockTables::Tables tables;  // by the scheduler's reaches; grow with `computed`
  int32_t place = -1;          // below max_num_seqs, its own while it runs; else -1
  // If layers are recurrent: the kept state that it begins with, until the step that does; and the
  // lengths of the prefixes whose state it is to leave behind, ascending.
  int32_t begins_from = -1;
  std::vector<size_t> keeps_at;
  bool hands_over = false;  // its prompt's full blocks are for another engine, with their state
  // The lengths, in blocks, of the prefixes behind which other sequences will likely begin: the one
  // that it began with, the one that it shares with another, its prompt.
  std::vector<size_t> likely_prefixes;
  std::string cache_salt;         // only sequences with the same share prefixes
  BlockHash before_first;         // the hash that the first block's follows: HashSalt
  std::vector<BlockHash> hashes;  // of the first full blocks of `tokens`, as many as were needed
  // Of the prompt, taken from the prefix cache at admission, without those that another engine has
  // just computed and handed over for it.
  size_t cached_prompt_tokens = 0;
  size_t handed_tokens = 0;  // the latter
  // If it rates its prompt: number of positions whose logits have been handed on. After a
  // preemption the computation restarts at 0; positions below `scored` must not be handed on a
  // second time.
  size_t scored = 0;
  int preemptions = 0;
  // Steps that have begun and compute tokens of it; set by the scheduler, as the next.
  int steps_in_flight = 0;
  bool aborted = false;  // it ends with these
  std::string failure;   // why the engine gives it up, if it does; set by the engine
  FinishReason finish = FinishReason::kNone;

  int64_t arrived_ns = 0, scheduled_ns = 0;  // set by the scheduler if still 0
  int64_t first_token_ns = 0;                // set by the engine

  // Whether the logits of the prompt's positions are wanted, so that all of them must be computed.
  bool rates_prompt() const { return score || params.prompt_logprobs >= 0; }
  size_t output_tokens() const { return tokens.size() - prompt_tokens; }
  size_t left() const { return tokens.size() - computed; }
  // Whether all that is left to compute is what the last step gave it.
  bool decodes() const { return left() <= 1 + jumped; }
};

// Fills `hashes` up to the first `blocks` blocks of the sequence's tokens.
void HashBlocks(Sequence& sequence, size_t blocks, size_t block_tokens);

// The order of sequences: by priority, then by arrival.
bool ComesBefore(const Sequence& a, const Sequence& b);

}  // namespace pinion
