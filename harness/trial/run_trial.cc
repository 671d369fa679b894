#include "engine/base/clock.h"
#include "engine/base/strings.h"
#include "engine/run/start.h"
#include "harness/probe/ceilings.h"
#include "harness/trial/measurement.h"
#include "harness/trial/trial.h"
#include "harness/trial/trial_server.h"

namespace pinion::harness {
namespace {

// The probe of the threads on which the server computed, for their ISA and type.
Result<std::unique_ptr<CeilingProbe>> ProbeFor(const TrialRequest& request, const ServerPlan& plan,
                                               const std::string& isa_name) {
  const auto isa = kernels::ParseIsa(isa_name);
  if (!isa)
    return Fail(ErrorCode::kUnsupported, StrCat("there is no probe for the ISA '", isa_name, "'"));
  PINION_ASSIGN(const PlannedModel model, PlanModel(request.options));
  return CeilingProbe::Start(plan.whole, *isa, model.formats.dtype,
                             model.formats.Count(IntegerProduct::kInt8) > 0);
}

// When the server has ended. If the ceilings cannot be measured, the trial keeps the reason.
void AddCeilings(const TrialRequest& request, const ServerPlan& plan, TrialResult& result) {
  const int64_t start_ns = NowNs();
  const auto probe = ProbeFor(request, plan, result.info.isa);
  if (!probe) {
    result.info.no_ceilings_because = probe.error().message;
    return;
  }
  const Ceilings ceilings = (*probe)->Measure();
  const auto add = [&](const char* metric, double value) {
    if (value > 0) result.samples.push_back({metric, 0, value});
  };
  add("ceiling_flops_per_s", ceilings.flops_per_s);
  add("ceiling_int8_ops_per_s", ceilings.int8_ops_per_s);
  add("ceiling_bytes_per_s", ceilings.read_bytes_per_s);
  result.info.once_s = SecondsSince(start_ns);
}

Result<TrialResult> Measure(const TrialRequest& request, const ServerPlan& plan, int64_t start_ns,
                            const std::function<bool()>& interrupted) {
  auto server = TrialServer::Start(request, plan, start_ns, interrupted);
  if (!server && server.error().code == ErrorCode::kTimeout) {
    TrialResult result;
    result.too_slow = server.error().message;
    return result;
  }
  if (!server) return Unexpected(std::move(server).error());
  PINION_ASSIGN(TrialResult result, Measurement(**server, request, start_ns).Run());
  (*server)->Describe(result);
  return result;
}

}  // namespace

Result<TrialResult> RunTrial(const TrialRequest& request, int64_t start_ns,
                             const std::function<bool()>& interrupted) {
  PINION_ASSIGN(const ServerPlan plan, PlanServer(request));
  PINION_ASSIGN(TrialResult result, Measure(request, plan, start_ns, interrupted));
  if (!result.too_slow.empty()) return result;
  if (!request.engine.fits_profile()) {  // else `pinion launch` starts its profile
    PINION_ASSIGN(result.info.command, ShownCommand(plan, request));
  }
  if (request.engine.is_pinion() && request.ceilings) AddCeilings(request, plan, result);
  return result;
}

}  // namespace pinion::harness
