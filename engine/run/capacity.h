#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/base/result.h"
#include "engine/decoder/decoder.h"
#include "engine/decoder/kv_layout.h"
#include "engine/decoder/stage_places.h"
#include "engine/host/binding.h"
#include "engine/host/budget.h"
#include "engine/host/machine.h"
#include "engine/run/options.h"
#include "engine/spec/reach.h"
#include "engine/spec/spec.h"
#include "engine/weights/stages.h"

namespace pinion {

// The memory one rank will need, in bytes, computed from shapes alone. The cache's size follows
// from kv.block_bytes(), state, one_step and reaches (SizeKv); CheckCapacity and MostKvBytes, which
// the CPU's device asks, take the rest as well.
struct RankNeeds {
  uint64_t weights = 0, workspace = 0;
  // Blocks of 0 bytes if the rank holds no heads. A device whose blocks are not laid out like this
  // leaves `layers` empty and has the bytes of a block in `page`.
  KvLayout kv;
  uint64_t state = 0;                      // of recurrent layers, for each sequence that runs
  bool one_step = false;                   // an encoder's: a sequence needs its KV for one step
  std::vector<Reach> reaches = {Reach{}};  // of a sequence's block tables
};
// By rank, as Partition numbers them. decoder.communicator and decoder.shares: those of a stage.
// places: which process has which rank of it. Buffers between the stages of a process are part of
// the workspace.
std::vector<RankNeeds> CountNeeds(const DecoderSpec& spec, const DecoderOptions& decoder,
                                  const Partition& partition, const StagePlaces& places);
// The same of one process with all ranks.
std::vector<RankNeeds> CountNeeds(const DecoderSpec& spec, const DecoderOptions& decoder,
                                  const Partition& partition);

// Takes from the needs of this process's ranks the weights that another engine of the server, with
// which it shares them, has packed already: so many bytes of them are there.
void LeaveOutPacked(uint64_t bytes, std::vector<RankNeeds>& needs);

// The longest sequence served: --max-model-len, else the model's own limit. An error if the flag
// exceeds the model's limit.
Result<size_t> ResolveModelLength(const DecoderSpec& spec, const EngineOptions& options);

// The longest text that is served of a model whose sequences have up to `length` tokens: one whose
// attention is bidirectional computes a text in one step.
size_t LongestServed(const DecoderSpec& spec, const EngineOptions& options, size_t length);

// The free memory that is left if the front end takes all that it may.
uint64_t LeftByFrontEnd(const EngineOptions& options, uint64_t available_bytes);

// Refuses, before loading, a model that would run out of memory later: compares weights, workspace
// and KV (as given, or one sequence of --max-model-len, or the smallest useful cache) with free
// memory, in total (less what the front end may take) and, unless --memory-policy lets it lie on
// other nodes too, per NUMA node. `needs` and `plan` have the same ranks, which may be those of
// several replicas. The error suggests a size that fits.
// ErrorCode::kExhausted.
Status CheckCapacity(const std::vector<RankNeeds>& needs, const EngineOptions& options,
                     size_t model_length, const Machine& machine, const Budget& budget,
                     const Plan& plan);

// The most that KV and states of all ranks may take if --memory-policy strict keeps each rank's
// part on its nodes, beside its weights and workspace; no limit under the other policies. `budget`
// is that before loading.
uint64_t MostKvBytes(const std::vector<RankNeeds>& needs, const EngineOptions& options,
                     const Machine& machine, const Budget& budget, const Plan& plan);

// Places for states of recurrent layers.
struct StatePlaces {
  size_t running = 0;  // of sequences that run at once
  size_t kept = 0;     // of prefixes
  size_t all() const { return running + kept; }
};
// As many as the memory of the cache holds: states take up to half of --kv-cache-space, else a
// quarter of `available_bytes`. A quarter of them is for prefixes, if they are cached, and at most
// max_num_seqs are of either kind. Ranks that hold no part of a state, though those of other
// processes may, limit neither.
StatePlaces SizeStates(const std::vector<RankNeeds>& needs, const EngineOptions& options,
                       uint64_t available_bytes);

// Ranks hold different numbers of heads: the largest block sets the limit. At least 1, as a
// divisor.
uint64_t LargestBlockBytes(const std::vector<RankNeeds>& needs);

// KV blocks that a sequence of so many tokens holds, over all its tables, when its last token is
// computed. While its prompt is computed it may hold more (MostBlocks).
size_t BlocksOfSequence(const std::vector<RankNeeds>& needs, const EngineOptions& options,
                        size_t tokens);

// Tokens that so many KV blocks hold, of sequences of this length.
size_t KvTokens(const std::vector<RankNeeds>& needs, const EngineOptions& options, size_t blocks,
                size_t model_length);

// Number of KV blocks: all of --kv-cache-space per rank, else half of `available_bytes` (free after
// loading the weights), both less the states of SizeStates, but no more than max_num_seqs sequences
// of full length can use (an encoder's: as many tokens as a step has), and more than half if a
// sequence of --max-model-len needs it.
Result<size_t> SizeKv(const std::vector<RankNeeds>& needs, const EngineOptions& options,
                      size_t model_length, uint64_t available_bytes);

}  // namespace pinion
