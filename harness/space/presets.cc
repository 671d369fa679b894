// The spaces that `pinion sweep` searches without --def.

#include <algorithm>
#include <set>

#include "engine/base/strings.h"
#include "harness/space/expand.h"
#include "kernels/isa.h"

namespace pinion::harness {
namespace {

bool HasSiblings(const Host& host) {
  for (int id : host.budget.cpus)
    if (const Cpu* cpu = host.machine.Find(id); cpu && cpu->sibling > 0) return true;
  return false;
}

int NodesWithCpus(const Host& host) {
  std::set<int> nodes;
  for (int id : host.budget.cpus)
    if (const Cpu* cpu = host.machine.Find(id)) nodes.insert(cpu->node);
  return std::max<int>(1, static_cast<int>(nodes.size()));
}

// Every second physical core, so that each node and cache keeps its share of threads: if
// memory bandwidth is the limit, half the threads may be as fast and leave cores for other work.
std::string HalfTheCores(const Host& host) {
  std::set<int> cores;
  std::vector<int> first_cpus;
  for (int id : host.budget.cpus)
    if (const Cpu* cpu = host.machine.Find(id); cpu && cores.insert(cpu->core).second)
      first_cpus.push_back(id);
  std::vector<int> half;
  for (size_t i = 0; i < first_cpus.size(); i += 2) half.push_back(first_cpus[i]);
  return half.size() < first_cpus.size() ? FormatCpuList(half) : "";
}

// `scalar` is a reference, not a contestant. Without integer matrices the VNNI paths equal the
// paths that they extend.
bool IsContestant(const std::string& name, const SpaceContext& context) {
  const auto isa = kernels::ParseIsa(name);
  if (!isa || isa == kernels::Isa::kScalar) return false;
  return context.has_integers || kernels::FloatPath(*isa) == *isa;
}

// Paths that differ for this model, from the fastest down; none for an engine without the setting.
std::vector<std::string> FastestIsas(const Host& host, const SpaceContext& context, size_t count) {
  std::vector<std::string> fastest;
  if (!HasSetting(context.engine, "isa")) return fastest;
  for (auto isa = host.isas.rbegin(); isa != host.isas.rend() && fastest.size() < count; ++isa)
    if (IsContestant(*isa, context)) fastest.push_back(*isa);
  return fastest;
}

Json Single(const char* key, Json value) {
  Json point = Json::MakeObject();
  point.Set(key, std::move(value));
  return point;
}

// A smaller step budget lets decodes continue between the chunks of a long prompt.
constexpr int kSmallStep = 256;

}  // namespace

Definition DefaultDefinition(const Host& host, const EngineOptions& base,
                             const SpaceContext& context) {
  const auto has = [&](const char* key) { return HasSetting(context.engine, key); };
  Definition definition;
  Axes& axes = definition.axes;
  if (base.tensor_parallel == 1) {
    std::vector<Json> bindings = {"auto", "nobind"};
    if (const std::string half = HalfTheCores(host); !half.empty()) bindings.emplace_back(half);
    SetAxis("threads_bind", std::move(bindings), axes);
  }
  if (const int nodes = NodesWithCpus(host); nodes > 1 && has("tensor_parallel"))
    SetAxis("tensor_parallel", {1, nodes}, axes);
  // The base's own values first: merged points are labelled by the first of them.
  const std::vector<std::string> isas = FastestIsas(host, context, 2);
  if (base.isa == "auto" && isas.size() > 1) SetAxis("isa", {"auto", isas[1]}, axes);
  std::vector<Json> step_tokens = {base.max_num_batched_tokens};
  if (base.max_num_batched_tokens != kSmallStep) step_tokens.emplace_back(kSmallStep);
  SetAxis("max_num_batched_tokens", std::move(step_tokens), axes);
  if (HasSiblings(host)) definition.candidates.push_back(Single("smt", "on"));
  // Varied one at a time, not crossed with the rest; unavailable ones stay listed with the reason.
  // For another machine it is unknown which of them are available.
  if (!host.machine.this_system) return definition;
  for (const RuntimeSetting& setting : RuntimeSettings())
    for (size_t i = 1; i < setting.values.size() && has(setting.key); ++i)
      definition.candidates.push_back(Single(setting.key, setting.values[i]));
  return definition;
}

Definition QuickDefinition(const Host& host, const EngineOptions& base,
                           const SpaceContext& context) {
  constexpr size_t kOthers = 5;  // 6 with the baseline
  Definition definition;
  definition.budget_s = 600;
  definition.rounds = 6;
  definition.trial_limit_s = 12;
  definition.workload = {128, 32, {1, 4}, 8};
  std::vector<Json>& candidates = definition.candidates;
  const bool has_ranks = HasSetting(context.engine, "tensor_parallel");
  if (const int nodes = NodesWithCpus(host); nodes > 1 && base.tensor_parallel == 1 && has_ranks)
    candidates.push_back(Single("tensor_parallel", nodes));
  if (HasSiblings(host)) candidates.push_back(Single("smt", "on"));
  const std::vector<std::string> isas = FastestIsas(host, context, 3);
  if (isas.size() > 1) candidates.push_back(Single("isa", isas[1]));
  if (const std::string half = HalfTheCores(host); !half.empty() && base.tensor_parallel == 1)
    candidates.push_back(Single("threads_bind", half));
  candidates.push_back(Single("max_num_batched_tokens", kSmallStep));
  if (isas.size() > 2) candidates.push_back(Single("isa", isas[2]));
  candidates.push_back(Single("threads_bind", "nobind"));
  if (candidates.size() > kOthers) candidates.resize(kOthers);
  return definition;
}

}  // namespace pinion::harness
