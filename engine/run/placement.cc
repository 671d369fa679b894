#include "engine/run/placement.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

using BytesOfNode = std::vector<std::pair<int, uint64_t>>;

std::string Describe(const BytesOfNode& bytes) {
  std::vector<std::string> parts;
  for (const auto& [node, size] : bytes)
    parts.push_back(StrCat(FormatBytes(size), " on node ", node));
  return parts.empty() ? "not written yet" : Join(parts, ", ");
}

Json ToJson(const BytesOfNode& bytes) {
  static const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  Json list = Json::MakeArray();
  for (const auto& [node, size] : bytes) {
    Json entry = Json::MakeObject();
    entry.Set("node", node);
    entry.Set("bytes", size);
    entry.Set("pages", (size + page_bytes - 1) / page_bytes);
    list.Append(std::move(entry));
  }
  return list;
}

// Weights outside the rank's planned nodes: every step reads them across the interconnect.
void WarnOfStrays(const RankPlan& rank, const BytesOfNode& weights) {
  uint64_t strays = 0, all = 0;
  for (const auto& [node, size] : weights) {
    all += size;
    if (std::find(rank.nodes.begin(), rank.nodes.end(), node) == rank.nodes.end()) strays += size;
  }
  if (rank.nodes.empty() || strays * 20 <= all) return;  // 5 %: shared pages, sampling error
  LogWarning(StrCat(FormatBytes(strays), " of the weights of rank ", rank.rank,
                    " are not on the nodes that the plan gives it; check whether these are full or "
                    "a memory policy (numactl) is set"));
}

}  // namespace

Json PlacementOf(const StartedModel& model) {
  Json list = Json::MakeArray();
  const auto placements = model.executor->placements();
  for (size_t rank = 0; rank < placements.size(); ++rank) {
    Json entry = Json::MakeObject();
    entry.Set("rank", static_cast<uint64_t>(rank));
    entry.Set("nodes", Json(model.info.plan.ranks[rank].nodes));
    entry.Set("weights", ToJson(placements[rank].weights));
    entry.Set("kv", ToJson(placements[rank].kv));
    list.Append(std::move(entry));
  }
  return list;
}

std::string FindPlacement(StartedModel& model) {
  model.info.placement = PlacementOf(model);
  std::vector<std::string> parts;
  const auto placements = model.executor->placements();
  for (size_t rank = 0; rank < placements.size(); ++rank) {
    const auto& [weights, kv] = placements[rank];
    parts.push_back(StrCat("rank ", rank, ": weights ", Describe(weights), "; KV ", Describe(kv)));
    WarnOfStrays(model.info.plan.ranks[rank], weights);
  }
  return Join(parts, "; ");
}

}  // namespace pinion
