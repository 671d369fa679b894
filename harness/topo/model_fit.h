#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/host/binding.h"
#include "engine/run/options.h"
#include "engine/spec/cache_kinds.h"

namespace pinion::harness {

// Memory of a model's weights and sequences, and the number of sequences that fit into a machine;
// of one engine, if a server is to have several.
struct ModelFit {
  std::string name, architecture, kv_dtype;
  int replicas = 1;                                // engines
  int weight_copies = 1;                           // that they read
  uint64_t weight_bytes = 0, workspace_bytes = 0;  // over all ranks
  size_t sequence_tokens = 0;                      // of the longest sequence served
  std::vector<CacheKind> kinds;                    // for a sequence of that length
  // Of the model: of each token while no layer's window is full, and of a sequence of that length.
  uint64_t kv_bytes_per_token = 0, kv_bytes_per_sequence = 0, state_bytes_per_sequence = 0;
  // Bytes that such a sequence really occupies: whole blocks and states, on every rank; ranks that
  // share a head of keys and values have a copy each.
  uint64_t held_bytes_per_sequence = 0;
  // The cache that an engine would make, over all ranks: all of --kv-cache-space, or SizeKv's share
  // of the memory that is free once weights and workspace are there.
  uint64_t cache_bytes = 0;
  size_t sequences = 0;       // of sequence_tokens that it holds at once, at most --max-num-seqs
  size_t longest_tokens = 0;  // that one sequence can have; less than sequence_tokens if 0 fit
  std::string refusal;        // why the model does not start here; else empty
};

// From shapes alone: opens the model's files and reads no weights. `plan`: of all replicas
// (PlanReplicas). Errors are those of the model and of its settings; memory that does not suffice
// is a `refusal`.
Result<ModelFit> FitModel(const EngineOptions& options, int replicas, const Machine& machine,
                          const Budget& budget, const Plan& plan);

// {"name","architecture","replicas","weight_copies","weight_bytes","workspace_bytes","kv_dtype","sequence_tokens",
//  "kv_bytes_per_token","kv_bytes_per_sequence","state_bytes_per_sequence",
//  "held_bytes_per_sequence","kinds":[{"name","layers","most_tokens","bytes_per_token",
//  "bytes_per_sequence"}],"cache_bytes","sequences","longest_tokens","refusal"}; most_tokens is
// null if all tokens are kept, refusal if there is none.
Json ToJson(const ModelFit& fit);

// As lines of text: label and sentence; lines that go on with another's have no label.
std::vector<std::pair<std::string, std::string>> Describe(const ModelFit& fit);

}  // namespace pinion::harness
