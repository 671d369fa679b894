#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion::harness {

// Resident memory of one kind: on which nodes it is.
struct LiveMemory {
  struct OnNode {
    int node = 0;
    uint64_t bytes = 0, pages = 0;  // estimates from a sample, as the server tells them
  };
  std::vector<OnNode> nodes;           // ascending
  std::optional<double> remote_share;  // on nodes that the plan does not give the rank
  std::string unknown;                 // why the nodes are unknown; else empty

  uint64_t bytes() const;
};

struct LiveRank {
  int rank = 0;
  std::vector<int> planned;       // nodes
  std::string policy;             // of its memory, that is in force; empty: not told
  std::vector<int> policy_nodes;  // none: those of the threads
  LiveMemory weights, kv, workspace;
};

// Placement of a running server's memory: of each engine (replica) its ranks, as far as they belong
// to the process that answers.
struct LivePlacement {
  std::string url, model;
  int processes = 1;                           // that compute the model together
  std::string policy_refusal;                  // why --memory-policy is not in force; else empty
  std::vector<std::vector<LiveRank>> engines;  // by replica
  // By replica: the first one that reads the same copy of the weights; itself, if that is its own.
  std::vector<size_t> weights_of;
};

// From the answer to /server_info. An error if it is not a Pinion server's that runs a model.
Result<LivePlacement> ReadPlacement(const Json& server_info, const std::string& url);

// {"url","model","processes","policy_refusal","engines":[{"weights_of":replica,"ranks":[{"rank","nodes":[planned],
//  "policy","policy_nodes","weights":{"nodes":[{"node","bytes","pages"}],"bytes","remote_share",
//  "unknown"},"kv":{the same},"workspace":{the same}}]}]}
Json ToJson(const LivePlacement& placement);

// As text of at most 100 columns.
std::string DrawPlacement(const LivePlacement& placement, bool colour);

}  // namespace pinion::harness
