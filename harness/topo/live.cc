#include "harness/topo/live.h"

#include <algorithm>
#include <utility>

#include "engine/base/json_lists.h"
#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "engine/run/placement.h"
#include "harness/stats/text.h"
#include "harness/topo/styled_text.h"

namespace pinion::harness {
namespace {

Result<const Json*> ListOf(const Json& object, std::string_view key) {
  const Json* list = object.Find(key);
  if (list && list->is_array()) return list;
  return Fail(ErrorCode::kFailed,
              StrCat("'", key, "' is ", list ? list->type_name() : "missing", ", want a list"));
}

Result<uint64_t> CountOf(const Json& object, std::string_view key) {
  PINION_ASSIGN(const int64_t count, Require<int64_t>(object, key));
  if (count < 0)
    return Fail(ErrorCode::kFailed, StrCat("'", key, "' is ", count, ", want 0 or more"));
  return static_cast<uint64_t>(count);
}

Result<LiveMemory> MemoryOf(const Json& rank, std::string_view key) {
  LiveMemory memory;
  PINION_ASSIGN(const Json* const list, ListOf(rank, key));
  for (const Json& entry : list->array()) {
    LiveMemory::OnNode on;
    PINION_ASSIGN(on.node, Require<int>(entry, "node"));
    PINION_ASSIGN(on.bytes, CountOf(entry, "bytes"));
    PINION_ASSIGN(on.pages, CountOf(entry, "pages"));
    memory.nodes.push_back(on);
  }
  const Json* shares = rank.Find("remote_share");
  if (!shares) return Fail(ErrorCode::kFailed, "'remote_share' is missing: an older version");
  const Json* share = shares->Find(key);
  if (share && share->is_number()) memory.remote_share = share->number();
  if (const Json* why = rank.Find("unknown"); why && why->is_string())
    memory.unknown = why->string();
  return memory;
}

Result<std::vector<int>> NodesIn(const Json& rank, std::string_view key) {
  PINION_ASSIGN(const Json* const list, ListOf(rank, key));
  return IntegersIn(list);
}

Result<LiveRank> RankOf(const Json& entry) {
  LiveRank rank;
  PINION_ASSIGN(rank.rank, Require<int>(entry, "rank"));
  PINION_ASSIGN(rank.planned, NodesIn(entry, "nodes"));
  PINION_ASSIGN(rank.policy, Optional<std::string>(entry, "policy", ""));
  if (!rank.policy.empty()) {
    PINION_ASSIGN(rank.policy_nodes, NodesIn(entry, "policy_nodes"));
  }
  PINION_ASSIGN(rank.weights, MemoryOf(entry, "weights"));
  PINION_ASSIGN(rank.kv, MemoryOf(entry, "kv"));
  PINION_ASSIGN(rank.workspace, MemoryOf(entry, "workspace"));
  return rank;
}

Result<std::vector<LiveRank>> RanksOf(const Json& engine) {
  std::vector<LiveRank> ranks;
  PINION_ASSIGN(const Json* const list, ListOf(engine, "placement"));
  for (const Json& entry : list->array()) {
    PINION_ASSIGN(LiveRank rank, RankOf(entry));
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

// The first engine that told of the same copy of the weights; else this one.
size_t FirstWithCopyOf(const Json& engine, std::vector<Json>& copies) {
  const Json* shared = engine.Find("shared_weights");
  const Json* copy = shared && shared->is_object() ? shared->Find("copy") : nullptr;
  copies.push_back(copy ? *copy : Json());
  if (!copy) return copies.size() - 1;
  return static_cast<size_t>(std::find(copies.begin(), copies.end(), *copy) - copies.begin());
}

Result<LivePlacement> Read(const Json& info) {
  LivePlacement placement;
  if (const Json* options = info.Find("options")) {
    PINION_ASSIGN(placement.model, Optional<std::string>(*options, "model", ""));
  }
  PINION_ASSIGN(placement.processes, Optional<int>(info, "processes", 1));
  const Json* replicas = info.Find("replicas");
  const bool several = replicas && replicas->is_array();
  std::vector<Json> copies;
  for (const Json& engine : several ? replicas->array() : Json::Array{info}) {
    PINION_ASSIGN(std::vector<LiveRank> ranks, RanksOf(engine));
    placement.engines.push_back(std::move(ranks));
    placement.weights_of.push_back(FirstWithCopyOf(engine, copies));
    const Json* policy = engine.Find("memory_policy");
    const Json* refusal = policy ? policy->Find("refusal") : nullptr;
    if (refusal && refusal->is_string()) placement.policy_refusal = refusal->string();
  }
  return placement;
}

Json TextOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json MemoryJson(const LiveMemory& memory) {
  Json nodes = Json::MakeArray();
  for (const auto& [node, bytes, pages] : memory.nodes)
    nodes.Append(Json::Object{{"node", node}, {"bytes", bytes}, {"pages", pages}});
  return Json::Object{{"nodes", std::move(nodes)},
                      {"bytes", memory.bytes()},
                      {"remote_share", memory.remote_share ? Json(*memory.remote_share) : Json()},
                      {"unknown", TextOrNull(memory.unknown)}};
}

std::string MemoryText(const char* what, const LiveMemory& memory) {
  if (!memory.unknown.empty()) return StrCat(what, ": unknown, because ", memory.unknown);
  if (memory.nodes.empty()) return StrCat(what, ": not written yet");
  std::vector<std::string> nodes;
  for (const auto& [node, bytes, pages] : memory.nodes)
    nodes.push_back(StrCat(Counted(pages, "page"), " (", FormatBytes(bytes), ") on node ", node));
  return StrCat(what, ": ", Join(nodes, ", "), " · ",
                memory.remote_share ? Percent(*memory.remote_share) : "an unknown share",
                " remote");
}

std::string RankText(const LiveRank& rank, bool colour) {
  const auto on = [](const std::vector<int>& nodes) {
    return StrCat(nodes.size() == 1 ? " on node " : " on nodes ", FormatCpuList(nodes));
  };
  std::string planned =
      rank.planned.empty() ? "no node is planned" : StrCat("planned", on(rank.planned));
  if (!rank.policy.empty()) planned += StrCat(" · memory policy ", rank.policy);
  if (!rank.policy_nodes.empty()) planned += on(rank.policy_nodes);
  std::string text = Paragraph(StrCat("rank ", rank.rank), planned, colour);
  for (const auto& [what, memory] :
       {std::pair{"weights", &rank.weights}, {"KV", &rank.kv}, {"workspace", &rank.workspace}}) {
    const bool warns =
        memory->remote_share.value_or(0) > kRemoteWarning && rank.policy != "interleave";
    text +=
        Paragraph("", MemoryText(what, *memory), colour, warns ? Style::kWarning : Style::kPlain);
  }
  return text;
}

}  // namespace

uint64_t LiveMemory::bytes() const {
  uint64_t sum = 0;
  for (const OnNode& on : nodes) sum += on.bytes;
  return sum;
}

Result<LivePlacement> ReadPlacement(const Json& server_info, const std::string& url) {
  auto placement = Read(server_info);
  if (!placement)
    return Fail(ErrorCode::kFailed,
                StrCat(url, " tells no placement of a model's memory (", placement.error().message,
                       "); --live wants a server that this version of pinion started"));
  placement->url = url;
  return placement;
}

Json ToJson(const LivePlacement& placement) {
  Json engines = Json::MakeArray();
  for (size_t engine = 0; engine < placement.engines.size(); ++engine) {
    Json list = Json::MakeArray();
    for (const LiveRank& rank : placement.engines[engine]) {
      list.Append(Json::Object{{"rank", rank.rank},
                               {"nodes", rank.planned},
                               {"policy", TextOrNull(rank.policy)},
                               {"policy_nodes", rank.policy_nodes},
                               {"weights", MemoryJson(rank.weights)},
                               {"kv", MemoryJson(rank.kv)},
                               {"workspace", MemoryJson(rank.workspace)}});
    }
    engines.Append(Json::Object{{"weights_of", static_cast<uint64_t>(placement.weights_of[engine])},
                                {"ranks", std::move(list)}});
  }
  return Json::Object{{"url", placement.url},
                      {"model", placement.model},
                      {"processes", placement.processes},
                      {"policy_refusal", TextOrNull(placement.policy_refusal)},
                      {"engines", std::move(engines)}};
}

std::string DrawPlacement(const LivePlacement& placement, bool colour) {
  StyledText title(colour);
  title.Add(placement.model, Style::kBold).Add(StrCat(" at ", placement.url));
  std::string text = title.text() + "\n";
  for (size_t engine = 0; engine < placement.engines.size(); ++engine) {
    const size_t first = placement.weights_of[engine];
    if (placement.engines.size() > 1)
      text +=
          StrCat("\nengine ", engine,
                 first == engine ? "" : StrCat(" · its weights are those of engine ", first), "\n");
    for (const LiveRank& rank : placement.engines[engine]) text += RankText(rank, colour);
  }
  if (!placement.policy_refusal.empty())
    text += Paragraph("", placement.policy_refusal, colour, Style::kWarning);
  if (const int others = placement.processes - 1; others > 0)
    text +=
        Paragraph("",
                  StrCat("the ranks of ", others, " other ", others == 1 ? "process" : "processes",
                         " are not shown: each process sees its own pages alone"),
                  colour, Style::kDim);
  return text;
}

}  // namespace pinion::harness
