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

std::string Describe(const MemoryNodes& memory) {
  if (!memory.unknown.empty()) return StrCat("unknown, because ", memory.unknown);
  std::vector<std::string> parts;
  for (const auto& [node, size] : memory.bytes_of_node)
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

Json RemoteShareJson(const std::vector<int>& planned, const BytesOfNode& bytes) {
  const auto share = RemoteShare(planned, bytes);
  return share ? Json(*share) : Json();
}

// Weights outside the rank's planned nodes: every step reads them across the interconnect.
void WarnOfStrays(const RankPlan& rank, const MemoryPolicy& policy, const BytesOfNode& weights) {
  if (policy.mode == MemoryMode::kInterleave) return;  // as it was asked for
  const double share = RemoteShare(rank.nodes, weights).value_or(0);
  if (share <= kRemoteWarning) return;
  uint64_t all = 0;
  for (const auto& [node, size] : weights) all += size;
  LogWarning(StrCat(FormatBytes(static_cast<uint64_t>(share * static_cast<double>(all))),
                    " of the weights of rank ", rank.rank,
                    " are not on the nodes that the plan gives it; check whether these are full or "
                    "a memory policy (numactl) is set"));
}

MemoryPolicy PolicyOf(const StartedModel& model, size_t rank) {
  return rank < model.memory.size() ? model.memory[rank] : MemoryPolicy{};
}

// Of all ranks: they are granted together.
const char* InForce(const StartedModel& model) { return Name(PolicyOf(model, 0).mode); }

}  // namespace

Json MemoryPolicyOf(const StartedModel& model) {
  Json json = Json::MakeObject();
  json.Set("asked", model.options.memory_policy);
  json.Set("in_force", InForce(model));
  json.Set("refusal", model.memory_refusal.empty() ? Json() : Json(model.memory_refusal));
  return json;
}

std::optional<double> RemoteShare(const std::vector<int>& planned, const BytesOfNode& bytes) {
  uint64_t elsewhere = 0, all = 0;
  for (const auto& [node, size] : bytes) {
    all += size;
    if (std::find(planned.begin(), planned.end(), node) == planned.end()) elsewhere += size;
  }
  if (planned.empty() || all == 0) return std::nullopt;
  return static_cast<double>(elsewhere) / static_cast<double>(all);
}

Json PlacementOf(const StartedModel& model) {
  Json list = Json::MakeArray();
  const auto placements = model.executor->placements();
  for (size_t rank = 0; rank < placements.size(); ++rank) {
    Json entry = Json::MakeObject();
    const std::vector<int>& planned = model.info.plan.ranks[rank].nodes;
    Json remote = Json::MakeObject();
    const auto& [weights, kv, workspace] = placements[rank];
    remote.Set("weights", RemoteShareJson(planned, weights.bytes_of_node));
    remote.Set("kv", RemoteShareJson(planned, kv.bytes_of_node));
    remote.Set("workspace", RemoteShareJson(planned, workspace.bytes_of_node));
    entry.Set("rank", static_cast<uint64_t>(rank));
    entry.Set("nodes", Json(planned));
    entry.Set("weights", ToJson(weights.bytes_of_node));
    entry.Set("kv", ToJson(kv.bytes_of_node));
    entry.Set("workspace", ToJson(workspace.bytes_of_node));
    entry.Set("remote_share", std::move(remote));
    entry.Set("unknown", weights.unknown.empty() ? Json() : Json(weights.unknown));
    entry.Set("policy", Name(PolicyOf(model, rank).mode));
    entry.Set("policy_nodes", Json(PolicyOf(model, rank).nodes));
    list.Append(std::move(entry));
  }
  return list;
}

std::string FindPlacement(StartedModel& model) {
  model.info.placement = PlacementOf(model);
  std::vector<std::string> parts;
  const auto placements = model.executor->placements();
  for (size_t rank = 0; rank < placements.size(); ++rank) {
    const auto& [weights, kv, workspace] = placements[rank];
    parts.push_back(StrCat("rank ", rank, ": weights ", Describe(weights), "; KV ", Describe(kv),
                           "; workspace ", Describe(workspace)));
    WarnOfStrays(model.info.plan.ranks[rank], PolicyOf(model, rank), weights.bytes_of_node);
  }
  return StrCat("memory policy ", InForce(model), "; ", Join(parts, "; "));
}

}  // namespace pinion
