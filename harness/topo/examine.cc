#include "harness/topo/examine.h"

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
  BindingRequest request;
  request.threads_bind = options.threads_bind;
  request.ranks = options.tensor_parallel;
  request.reserved_cpus = options.reserved_cpus;
  request.has_frontend = options.has_frontend;
  request.smt = options.smt;
  PINION_ASSIGN(request.nobind_threads, OmpNumThreads());
  PINION_ASSIGN(topology.plan, MakePlan(topology.machine, topology.budget, request));
  for (kernels::Isa isa : kernels::OfferedIsas().isas)
    topology.isa.emplace_back(kernels::Name(isa));
  topology.amx_refusal = kernels::OfferedIsas().amx_refusal;
  return topology;
}

Json ToJson(const Topology& topology) {
  Json nodes = Json::MakeArray();
  for (const NumaNode& node : topology.machine.nodes) {
    Json item;
    item.Set("id", node.id);
    item.Set("cpus", node.cpus);
    item.Set("memory_bytes", node.memory_bytes);
    nodes.Append(std::move(item));
  }
  Json object;
  object.Set("budget", ToJson(topology.budget));
  object.Set("nodes", std::move(nodes));
  object.Set("isa", topology.isa);
  object.Set("amx_refusal", topology.amx_refusal.empty() ? Json() : Json(topology.amx_refusal));
  object.Set("plan", ToJson(topology.plan));
  return object;
}

}  // namespace pinion::harness
