#include "harness/topo/examine.h"

#include "engine/run/start.h"
#include "kernels/offered_isas.h"

namespace pinion::harness {

Result<Topology> Examine(const TopologyOptions& options) {
  Topology topology;
  PINION_ASSIGN(topology.machine,
                options.machine.empty() ? ThisMachine() : ImagineMachine(options.machine));
  BudgetLimits limits;
  limits.cpu_quota = options.cpu_quota;
  if (!options.allowed_cpus.empty()) {
    auto cpus = ParseCpuList(options.allowed_cpus);
    if (!cpus) return Unexpected(std::move(cpus).error().In("--allowed-cpus"));
    limits.allowed_cpus = std::move(*cpus);
  }
  PINION_ASSIGN(topology.budget, ComputeBudget(topology.machine, limits));
  PINION_ASSIGN(topology.plan, PlanFor(options.engine, topology.machine, topology.budget));
  for (kernels::Isa isa : kernels::OfferedIsas().isas)
    topology.isa.emplace_back(kernels::Name(isa));
  topology.amx_refusal = kernels::OfferedIsas().amx_refusal;
  if (!options.engine.model.empty()) {
    PINION_ASSIGN(topology.model,
                  FitModel(options.engine, topology.machine, topology.budget, topology.plan));
  }
  return topology;
}

namespace {

Json KindsOf(const Machine& machine) {
  Json kinds = Json::MakeArray();
  for (size_t kind = 0; kind < machine.kinds.size(); ++kind) {
    std::vector<int> cpus;
    for (const Cpu& cpu : machine.cpus)
      if (static_cast<size_t>(cpu.kind) == kind) cpus.push_back(cpu.id);
    kinds.Append(Json::Object{{"name", machine.kinds[kind].name}, {"cpus", cpus}});
  }
  return kinds;
}

}  // namespace

Json ToJson(const Topology& topology) {
  Json nodes = Json::MakeArray();
  for (const NumaNode& node : topology.machine.nodes) {
    nodes.Append(
        Json::Object{{"id", node.id}, {"cpus", node.cpus}, {"memory_bytes", node.memory_bytes}});
  }
  Json object;
  object.Set("budget", ToJson(topology.budget));
  object.Set("nodes", std::move(nodes));
  object.Set("cpu_kinds", KindsOf(topology.machine));
  object.Set("isa", topology.isa);
  object.Set("amx_refusal", topology.amx_refusal.empty() ? Json() : Json(topology.amx_refusal));
  object.Set("plan", ToJson(topology.plan));
  object.Set("model", topology.model ? ToJson(*topology.model) : Json());
  return object;
}

}  // namespace pinion::harness
