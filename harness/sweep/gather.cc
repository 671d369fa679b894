#include "harness/sweep/gather.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "engine/base/json_lists.h"
#include "engine/base/strings.h"
#include "harness/sweep/assemble.h"
#include "harness/sweep/folder.h"

namespace pinion::harness {
namespace {

constexpr std::array kPhases = {Phase::kRace, Phase::kConfirmation, Phase::kCalibration};

// How many rounds of each phase come before a node's own.
using Offsets = std::map<Phase, int>;

struct NodeSweep {
  std::string folder;
  std::unique_ptr<Store> store;
  SweepMeta meta;
  SweepProgress progress;
  std::vector<CandidateRow> candidates;
  std::vector<TrialRow> trials;
};

Result<NodeSweep> ReadNode(const std::string& folder) {
  NodeSweep node;
  node.folder = folder;
  PINION_ASSIGN(node.store, Store::Open(folder + "/results.db"));
  PINION_ASSIGN(node.meta, ReadMeta(*node.store));
  if (!node.meta.nodes.is_null())
    return Fail(ErrorCode::kUsage,
                StrCat(folder, " holds a gathered sweep; gather the sweeps that it was made of"));
  PINION_ASSIGN(node.progress, ReadProgress(*node.store));
  PINION_ASSIGN(node.candidates, node.store->Candidates());
  PINION_ASSIGN(node.trials, node.store->Trials());
  return node;
}

// The facts that must be equal on all nodes, by name. The kernel and the CPUs' numbers may differ.
Json KindOf(const SweepMeta& meta) {
  Json kind = Json::Object{{"model", meta.model}, {"configuration", ToJson(meta.base)}};
  Json definition = ToJson(meta.definition);
  for (const char* key : {"budget", "rounds", "seed"}) definition.Set(key, Json());
  for (const auto& [key, value] : definition.object())
    kind.Set(StrCat("definition (", key, ")"), value);
  for (const char* key : {"cpu_model", "packages", "cores", "cpus", "l3_bytes", "isa_flags"})
    kind.Set(StrCat("machine (", key, ")"), ValueAt(meta.machine, {key}));
  kind.Set("machine (NUMA nodes)", ItemsOf(meta.machine, "nodes").size());
  kind.Set("number of CPUs", ItemsOf(meta.budget, "cpus").size());
  kind.Set("CPU quota", ValueAt(meta.budget, {"cpu_quota"}));
  kind.Set("pinion (hash of the binary)", ValueAt(meta.provenance, {"engine", "binary_hash"}));
  kind.Set("model (hash of its files)", ValueAt(meta.provenance, {"model", "hash"}));
  kind.Set("file of an engine (hashes)", ValueAt(meta.provenance, {"engines"}));
  kind.Set("environment", ValueAt(meta.provenance, {"environment"}));
  return kind;
}

Json KindOf(const NodeSweep& node) {
  Json kind = KindOf(node.meta);
  Json labels = Json::MakeArray();
  for (const CandidateRow& row : node.candidates) labels.Append(row.label);
  kind.Set("list of configurations", std::move(labels));
  return kind;
}

// Each node fits its trials to itself, so that nodes of one kind can differ.
Status CheckOneBatch(const std::vector<NodeSweep>& nodes) {
  const NodeSweep* first = nullptr;
  for (const NodeSweep& node : nodes) {
    if (!RanBatch(node.trials)) continue;
    if (!first) first = &node;
    const int reduced = ReducedBatch(node.trials), other = ReducedBatch(first->trials);
    if (reduced == other) continue;
    return Fail(ErrorCode::kUsage,
                StrCat(node.folder, " was measured with an offline batch reduced to ", reduced,
                       " prompts, ", first->folder, " to ", other,
                       " (0: not reduced); sweep both with the same --trial-limit"));
  }
  return {};
}

Status CheckOneKind(const std::vector<NodeSweep>& nodes) {
  const Json first = KindOf(nodes.front());
  for (size_t i = 1; i < nodes.size(); ++i)
    if (const auto difference = FirstDifference(first, KindOf(nodes[i])))
      return Fail(ErrorCode::kUsage,
                  StrCat(nodes[i].folder, " was measured with another ", difference->what, " than ",
                         nodes.front().folder, ": ", difference->other.Dump(), " instead of ",
                         difference->first.Dump(),
                         "; gather sweeps of one definition on nodes of one kind"));
  return {};
}

// One after the other; the same sweep twice would count its noise twice.
Result<std::vector<NodeSweep>> ReadNodes(const std::vector<std::string>& folders) {
  if (folders.size() < 2)
    return Fail(ErrorCode::kUsage,
                StrCat("--gather takes the folders of two sweeps at least, not ", folders.size()));
  std::vector<NodeSweep> nodes;
  std::set<std::string> seen;
  for (const std::string& folder : folders) {
    std::error_code ignored;
    if (!seen.insert(std::filesystem::weakly_canonical(folder, ignored).string()).second)
      return Fail(ErrorCode::kUsage, StrCat("--gather names ", folder, " twice; leave one out"));
    PINION_ASSIGN(NodeSweep node, ReadNode(folder));
    nodes.push_back(std::move(node));
  }
  PINION_TRY(CheckOneKind(nodes));
  PINION_TRY(CheckOneBatch(nodes));
  return nodes;
}

// A store that was gathered before may be written anew; any other holds measurements.
Status MakeRoom(const std::string& into) {
  if (!HoldsSweep(into)) return {};
  const std::string path = into + "/results.db";
  {
    PINION_ASSIGN(const auto store, Store::Open(path));
    PINION_ASSIGN(const SweepMeta meta, ReadMeta(*store));
    if (meta.nodes.is_null())
      return Fail(ErrorCode::kUsage,
                  StrCat(into, " holds a sweep of its own; choose another --out"));
  }
  std::error_code failure;
  std::filesystem::remove(path, failure);
  if (!failure) return {};
  return Fail(ErrorCode::kIo, StrCat("cannot remove '", path, "': ", failure.message()));
}

int RoundsOf(const std::vector<TrialRow>& trials, Phase phase) {
  int last = 0;
  for (const TrialRow& trial : trials)
    if (trial.phase == phase) last = std::max(last, trial.round);
  return last;
}

Json Describe(const NodeSweep& node, const Offsets& before) {
  Json json;
  json.Set("folder", node.folder);
  json.Set("started_at", node.meta.started_at);
  json.Set("finished", node.progress.finished);
  json.Set("definition", ToJson(node.meta.definition));
  json.Set("cpus", *node.meta.budget.Find("cpus"));
  json.Set("trials", static_cast<int64_t>(node.trials.size()));
  for (const Phase phase : kPhases) {
    json.Set(StrCat(Name(phase), "_rounds_before"), before.at(phase));
    json.Set(StrCat(Name(phase), "_rounds"), RoundsOf(node.trials, phase));
  }
  return json;
}

Status CopyTrials(const NodeSweep& node, const Offsets& before, Store& into) {
  for (const TrialRow& stored : node.trials) {
    TrialRow trial = stored;
    PINION_ASSIGN(trial.requests, node.store->Requests(stored));
    PINION_ASSIGN(Store::Keys keys, node.store->KeysOf(stored));
    trial.round += before.at(trial.phase);
    trial.log_path = node.folder + "/" + trial.log_path;
    PINION_TRY(into.PutTrial(trial, keys));
  }
  return {};
}

Status WriteNodes(const std::vector<NodeSweep>& nodes, Store& into) {
  SweepMeta meta = nodes.front().meta;
  meta.nodes = Json::MakeArray();
  SweepProgress progress = nodes.front().progress;
  Offsets before = {{Phase::kRace, 0}, {Phase::kConfirmation, 0}, {Phase::kCalibration, 0}};
  progress.rounds_planned = 0;
  PINION_TRY(into.PutCandidates(nodes.front().candidates));
  for (const NodeSweep& node : nodes) {
    meta.nodes.Append(Describe(node, before));
    meta.started_at = std::min(meta.started_at, node.meta.started_at);
    progress.updated_at = std::max(progress.updated_at, node.progress.updated_at);
    progress.rounds_planned += node.progress.rounds_planned;
    progress.finished = progress.finished && node.progress.finished;
    PINION_TRY(CopyTrials(node, before, into));
    for (const Phase phase : kPhases) before[phase] += RoundsOf(node.trials, phase);
  }
  PINION_TRY(WriteMeta(into, meta));
  return WriteProgress(into, progress);
}

// A node's trials with the rounds that it counted itself.
std::vector<TrialRow> TrialsOf(const Json& node, const std::vector<TrialRow>& trials) {
  std::vector<TrialRow> own;
  for (TrialRow trial : trials) {
    const std::string phase = Name(trial.phase);
    const int before = Optional<int>(node, phase + "_rounds_before", 0).value_or(0);
    const int rounds = Optional<int>(node, phase + "_rounds", 0).value_or(0);
    trial.round -= before;
    if (trial.round >= 1 && trial.round <= rounds) own.push_back(std::move(trial));
  }
  return own;
}

// Entries of candidates that all of them have, in the words of the first.
std::map<int, std::string> InAll(const std::vector<ProtocolState>& states,
                                 std::map<int, std::string> ProtocolState::*of) {
  std::map<int, std::string> common = states.front().*of;
  for (const ProtocolState& state : states)
    std::erase_if(common, [&](const auto& entry) { return !(state.*of).contains(entry.first); });
  return common;
}

void AgreeOnLeaders(const std::vector<ProtocolState>& states, ProtocolState& joined) {
  for (const ObjectiveRace& race : states.front().races) {
    const std::optional<int> leader = race.leader();
    const bool common = std::all_of(states.begin(), states.end(), [&](const ProtocolState& state) {
      return std::any_of(state.races.begin(), state.races.end(), [&](const ObjectiveRace& other) {
        return other.objective == race.objective && other.leader() == leader;
      });
    });
    if (common && leader) joined.agreed_leaders[race.objective] = *leader;
  }
}

}  // namespace

Status Gather(const std::vector<std::string>& folders, const std::string& into) {
  PINION_ASSIGN(const std::vector<NodeSweep> nodes, ReadNodes(folders));
  PINION_ASSIGN(const auto held, SweepFolder::Hold(into));
  PINION_TRY(MakeRoom(into));
  const auto made =
      Store::Create(held.Database(), [&](Store& store) { return WriteNodes(nodes, store); });
  return made ? Status() : Unexpected(Error(made.error()));
}

Status CheckOneKind(const std::string& folder, const SweepMeta& stored, const SweepMeta& asked) {
  const auto difference = FirstDifference(KindOf(stored), KindOf(asked));
  if (!difference) return {};
  return Fail(ErrorCode::kUsage,
              StrCat(folder, " was measured with another ", difference->what, ": ",
                     difference->first.Dump(), " instead of ", difference->other.Dump(),
                     ", so that its trials could not be joined with those of this machine; choose "
                     "another --out"));
}

ProtocolState StateOfNodes(const SweepMeta& meta, const std::vector<CandidateRow>& candidates,
                           const std::vector<TrialRow>& trials) {
  std::vector<ProtocolState> states;
  for (const Json& node : meta.nodes.array()) {
    SweepMeta own = meta;
    if (const Json* definition = node.Find("definition"))
      (void)FromJson(*definition, own.definition);
    states.push_back(StateFrom(own, candidates, TrialsOf(node, trials)));
  }
  ProtocolState joined;
  joined.trials = trials;
  joined.race_over = true;
  std::set<int> confirmed;
  for (const ProtocolState& state : states) {
    joined.race_over = joined.race_over && state.race_over;
    joined.calibrations_done += state.calibrations_done;
    joined.rounds_done += state.rounds_done;
    joined.confirmations_done += state.confirmations_done;
    joined.rounds_planned += state.rounds_planned;
    joined.disqualified.insert(state.disqualified.begin(), state.disqualified.end());
    confirmed.insert(state.confirmed.begin(), state.confirmed.end());
  }
  joined.confirmed.assign(confirmed.begin(), confirmed.end());
  joined.dropped = InAll(states, &ProtocolState::dropped);
  joined.pruned = InAll(states, &ProtocolState::pruned);
  joined.passed_over = InAll(states, &ProtocolState::passed_over);
  AgreeOnLeaders(states, joined);
  return joined;
}

}  // namespace pinion::harness
