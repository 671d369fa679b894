#include "harness/topo/examine.h"

#include "engine/run/replicas.h"
#include "kernels/offered_isas.h"

namespace pinion::harness {
namespace {

std::vector<RankPlace> PlacesOf(const Plan& plan, const Partition& partition) {
  std::vector<RankPlace> places;
  for (int i = 0; i < static_cast<int>(plan.ranks.size()); ++i) {
    const int rank = i % partition.ranks();
    places.push_back({i / partition.ranks(), rank, partition.StageOfRank(rank)});
  }
  return places;
}

}  // namespace

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
  PINION_ASSIGN(topology.plan,
                PlanReplicas(options.engine, options.replicas, topology.machine, topology.budget));
  topology.places = PlacesOf(topology.plan, options.engine.partition());
  topology.replicas = options.replicas;
  topology.stages = options.engine.pipeline_parallel;
  for (kernels::Isa isa : kernels::OfferedIsas().isas)
    topology.isa.emplace_back(kernels::Name(isa));
  topology.amx_refusal = kernels::OfferedIsas().amx_refusal;
  if (!options.engine.model.empty()) {
    PINION_ASSIGN(topology.model, FitModel(options.engine, options.replicas, topology.machine,
                                           topology.budget, topology.plan));
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

Json PlacementOf(const Topology& topology) {
  Json placement = Json::MakeArray();
  for (size_t i = 0; i < topology.places.size(); ++i) {
    const RankPlace& place = topology.places[i];
    const RankPlan& rank = topology.plan.ranks[i];
    placement.Append(Json::Object{{"engine", place.engine},
                                  {"rank", place.rank},
                                  {"stage", place.stage},
                                  {"threads", rank.threads},
                                  {"nodes", rank.nodes},
                                  {"cpus", rank.cpus}});
  }
  return placement;
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
  object.Set("placement", PlacementOf(topology));
  object.Set("model", topology.model ? ToJson(*topology.model) : Json());
  return object;
}

}  // namespace pinion::harness
