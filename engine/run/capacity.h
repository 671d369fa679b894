#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/base/result.h"
#include "engine/host/binding.h"
#include "engine/host/budget.h"
#include "engine/host/machine.h"
#include "engine/model/decoder.h"
#include "engine/model/kv_layout.h"
#include "engine/model/spec.h"
#include "engine/run/options.h"

namespace pinion {

// What one rank will need, in bytes; counted from shapes alone.
struct RankNeeds {
  uint64_t weights = 0, workspace = 0;
  KvLayout kv;  // blocks of 0 bytes where the rank holds no heads
};
std::vector<RankNeeds> CountNeeds(const DecoderSpec& spec, const DecoderOptions& decoder,
                                  int ranks);

// The length that sequences may have: --max-model-len, else the model's. An error where the flag
// exceeds what the model was made for.
Result<size_t> ResolveModelLength(const DecoderSpec& spec, const EngineOptions& options);

// Refuses before loading what would die later: weights, workspace and KV (as given, or the least
// that makes sense) against the memory that is free, in all and per NUMA node. The error says what
// would fit. ErrorCode::kExhausted.
Status CheckCapacity(const std::vector<RankNeeds>& needs, const EngineOptions& options,
                     size_t model_length, const Machine& machine, const Budget& budget,
                     const Plan& plan);

// Blocks of KV: all of --kv-cache-space per rank, else half of `available_bytes` (what is free once
// the weights are loaded), but no more than max_num_seqs sequences of full length can use.
Result<size_t> SizeKv(const std::vector<RankNeeds>& needs, const EngineOptions& options,
                      size_t model_length, uint64_t available_bytes);

}  // namespace pinion
