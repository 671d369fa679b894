#include "harness/cli/sweep_prediction.h"

#include <iostream>
#include <utility>

#include "engine/base/strings.h"
#include "engine/model/model.h"
#include "engine/run/start.h"
#include "harness/cli/sweep_definition.h"
#include "harness/sweep/predict.h"
#include "harness/sweep/probed_machine.h"

namespace pinion::harness {

Status CheckProbed(const std::string& path, const Machine& machine) {
  PINION_ASSIGN(const Json probe, Json::ParseFile(path));
  const Json* probed = probe.Find("machine");
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

Result<Json> PredictionsFor(const SweepFlags& flags, const Definition& definition,
                            const EngineOptions& base, const Host& host) {
  if (flags.probe.empty()) return Json();
  if (!definition.engine.is_pinion())
    return Fail(ErrorCode::kUsage, "--probe can only predict Pinion's own engine: leave it out");
  PINION_ASSIGN(const Json probe, Json::ParseFile(flags.probe));
  PINION_ASSIGN(const ModelFiles model, FindModel(base.model));
  PINION_ASSIGN(const std::vector<Point> points, Expand(definition, base, host, model.spec));
  auto plan = PredictAll(points, host, base.model, definition.workload, probe);
  if (!plan) return Unexpected(std::move(plan).error().In(flags.probe));
  return plan;
}

Status PlanElsewhere(const SweepFlags& flags) {
  EngineOptions base;
  base.has_frontend = true;
  PINION_ASSIGN(base, flags.engine.Resolve(base));
  PINION_ASSIGN(const Json probe, Json::ParseFile(flags.probe));
  auto probed = ProbedMachine::Parse(probe);
  if (!probed) return Unexpected(std::move(probed).error().In(flags.probe));
  Host host;
  PINION_ASSIGN(host.machine, ImagineMachine(flags.machine));
  PINION_ASSIGN(host.budget, ComputeBudget(host.machine));
  host.isas = probed->Isas();
  PINION_ASSIGN(Definition definition, DefinitionFrom(flags, base, host));
  PINION_TRY(ApplyFlags(flags, base, definition));
  PINION_ASSIGN(const Json plan, PredictionsFor(flags, definition, base, host));
  std::cout << (flags.json ? plan.Dump(2) + "\n" : RenderPlan(plan)) << std::flush;
  return {};
}

}  // namespace pinion::harness
