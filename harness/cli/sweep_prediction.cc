#include "harness/cli/sweep_prediction.h"

#include <algorithm>
#include <iostream>
#include <optional>
#include <utility>

#include "engine/base/strings.h"
#include "engine/checkpoint/model.h"
#include "harness/cli/given_file.h"
#include "harness/cli/sweep_definition.h"
#include "harness/sweep/machine_ceilings.h"
#include "harness/sweep/plan.h"

namespace pinion::harness {
namespace {

// An error if `path` was probed on another machine, whose ceilings could prune the best candidate
// here.
Status CheckProbed(const std::string& path, const Machine& machine) {
  PINION_ASSIGN(const Json probe, ReadGivenJson(path));
  const Json* probed = probe.Find("machine");
  if (!probed)
    return Fail(
        ErrorCode::kUsage,
        StrCat(path, " was not written by `pinion probe`; create it with `pinion probe --out ",
               "FILE`"));
  const Json here = MachineFingerprint(machine);
  for (const char* key : {"cpu_model", "cores", "cpus"}) {
    const Json *there = probed ? probed->Find(key) : nullptr, *own = here.Find(key);
    if (there && own && *there == *own) continue;
    return Fail(ErrorCode::kUsage,
                StrCat(path, " was probed on another machine (", key, " is ",
                       there ? there->Dump() : "unknown", " there, ", own ? own->Dump() : "unknown",
                       " here): run `pinion probe --out ", path, "` on this one"));
  }
  return {};
}

Result<StatedCeilings> StatedBy(const SweepFlags& flags) {
  StatedCeilings stated;
  if (flags.node_bandwidth) {
    PINION_ASSIGN(stated.node_bytes_per_s,
                  ParseRate(*flags.node_bandwidth, "B", "--node-bandwidth"));
  }
  if (flags.memory_channels) {
    PINION_ASSIGN(stated.socket_bytes_per_s,
                  ParseChannels(*flags.memory_channels, "--memory-channels"));
  }
  if (flags.core_peak) {
    PINION_ASSIGN(stated.core_flops_per_s, ParseRate(*flags.core_peak, "FLOP", "--core-peak"));
  }
  return stated;
}

Result<Json> ProbeOf(const SweepFlags& flags) {
  return flags.probe.empty() ? Result<Json>(Json()) : ReadGivenJson(flags.probe);
}

// The ceilings of the machine that is planned for; none if none are given.
Result<std::optional<MachineCeilings>> CeilingsFor(const SweepFlags& flags, const Host& host) {
  PINION_ASSIGN(const StatedCeilings stated, StatedBy(flags));
  PINION_ASSIGN(const Json probe, ProbeOf(flags));
  if (probe.is_null() && !stated.any()) return std::optional<MachineCeilings>();
  const bool as_probed = flags.machine.empty() && !stated.any();
  if (flags.machine.empty() && !probe.is_null()) PINION_TRY(CheckProbed(flags.probe, host.machine));
  auto ceilings = as_probed ? MachineCeilings::Parse(probe)
                            : MachineCeilings::For(host.machine, probe, stated, host.isas);
  if (!ceilings && !flags.probe.empty())
    return Unexpected(std::move(ceilings).error().In(flags.probe));
  PINION_ASSIGN(MachineCeilings found, std::move(ceilings));
  return std::optional<MachineCeilings>(std::move(found));
}

// This machine, or the described one. Which ISA paths that has is the probe's to say, or else those
// of this one are assumed.
Result<Host> PlannedHost(const SweepFlags& flags) {
  PINION_ASSIGN(Host host, Host::This());
  if (flags.machine.empty()) return host;
  PINION_ASSIGN(host.machine, ImagineMachine(flags.machine));
  PINION_ASSIGN(host.budget, ComputeBudget(host.machine));
  host.runtime = {};
  // A description without memory gets nodes of 1 GB from hwloc, which nobody stated.
  if (!flags.machine.ends_with(".xml") && flags.machine.find("memory=") == std::string::npos)
    host.budget.memory_available_bytes = 0;
  PINION_ASSIGN(const Json probe, ProbeOf(flags));
  if (probe.is_null()) return host;
  auto probed = MachineCeilings::Parse(probe);
  if (!probed) return Unexpected(std::move(probed).error().In(flags.probe));
  host.isas = probed->Isas();
  return host;
}

Result<Json> PlanOf(const Definition& definition, const EngineOptions& base, const Host& host,
                    const MachineCeilings* ceilings) {
  const auto& engines = definition.engines;
  const bool has_pinion = std::any_of(engines.begin(), engines.end(),
                                      [](const EngineChoice& one) { return one.is_pinion(); });
  if (ceilings && !has_pinion)
    return Fail(ErrorCode::kUsage,
                "ceilings can only predict Pinion's own engine: leave them out for others");
  PINION_ASSIGN(const ModelFiles model, FindModel(base.model));
  PINION_ASSIGN(const std::vector<Point> points, Expand(definition, base, host, model.spec));
  return MakeSweepPlan(definition, base, host, points, ceilings);
}

}  // namespace

Result<Json> PredictionsFor(const SweepFlags& flags, const Definition& definition,
                            const EngineOptions& base, const Host& host) {
  if (flags.probe.empty()) return Json();
  PINION_ASSIGN(const auto ceilings, CeilingsFor(flags, host));
  return PlanOf(definition, base, host, &*ceilings);
}

Status CheckStated(const SweepFlags& flags) {
  PINION_ASSIGN(const StatedCeilings stated, StatedBy(flags));
  if (!stated.any()) return {};
  return Fail(ErrorCode::kUsage,
              "--node-bandwidth, --memory-channels and --core-peak need --plan or --machine: a "
              "sweep itself takes its limits from --probe");
}

Status PrintPlan(const SweepFlags& flags) {
  EngineOptions base;
  base.has_frontend = true;
  PINION_ASSIGN(base, flags.engine.Resolve(base));
  PINION_ASSIGN(const Host host, PlannedHost(flags));
  PINION_ASSIGN(Definition definition, DefinitionFrom(flags, base, host));
  PINION_TRY(ApplyFlags(flags, base, definition));
  PINION_ASSIGN(const auto ceilings, CeilingsFor(flags, host));
  PINION_ASSIGN(const Json plan, PlanOf(definition, base, host, ceilings ? &*ceilings : nullptr));
  std::cout << (flags.json ? plan.Dump(2) + "\n" : RenderSweepPlan(plan)) << std::flush;
  return {};
}

}  // namespace pinion::harness
