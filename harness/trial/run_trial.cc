#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/strings.h"
#include "engine/run/start.h"
#include "harness/probe/ceilings.h"
#include "harness/trial/measurement.h"
#include "harness/trial/runner.h"
#include "harness/trial/trial.h"
#include "harness/trial/trial_server.h"
#include "harness/trial/turns.h"

namespace pinion::harness {
namespace {

// The probe of the threads on which the server computed, for their ISA and type.
Result<std::unique_ptr<CeilingProbe>> ProbeFor(const TrialRequest& request, const ServerPlan& plan,
                                               const std::string& isa_name) {
  const auto isa = kernels::ParseIsa(isa_name);
  if (!isa)
    return Fail(ErrorCode::kUnsupported, StrCat("there is no probe for the ISA '", isa_name, "'"));
  PINION_ASSIGN(const PlannedModel model, PlanModel(request.configuration.options));
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

// The result of a server that did not start: a lack of time is one of its own.
Result<TrialResult> Unstarted(const Error& error) {
  if (error.code != ErrorCode::kTimeout) return Unexpected(Error(error));
  TrialResult result;
  result.too_slow = error.message;
  return result;
}

Result<TrialResult> Measure(const TrialRequest& request, const ServerPlan& plan, int64_t start_ns,
                            const std::function<bool()>& interrupted) {
  auto server = TrialServer::Start(request, plan, start_ns, interrupted);
  if (!server) return Unstarted(server.error());
  PINION_ASSIGN(TrialResult result, Measurement(**server, request, start_ns).Run());
  (*server)->Describe(result);
  return result;
}

// The command that a user would type for another engine: `pinion launch` starts the profile of
// ours.
Status AddCommand(const TrialRequest& request, const ServerPlan& plan, TrialResult& result) {
  if (request.engine.fits_profile()) return {};
  PINION_ASSIGN(result.info.command, ShownCommand(plan, request));
  return {};
}

// A server of a pair. Stays where it is: the running server refers to its plan.
class PairedServer {
 public:
  explicit PairedServer(const TrialRequest& request) : request_(request) {}

  void Start(int64_t start_ns, const std::function<bool()>& interrupted, int log_fd) {
    server_ = Started(start_ns, interrupted, log_fd);
  }

  LoadTarget* target() const { return server_ ? server_->get() : nullptr; }

  // With facts of the running server, or why it did not start.
  Result<TrialResult> Described(Result<TrialResult> measured) const {
    if (!server_) return Unstarted(server_.error());
    if (!measured || !measured->too_slow.empty()) return measured;
    (*server_)->Describe(*measured);
    measured->info.no_ceilings_because = "the two sides took turns";
    PINION_TRY(AddCommand(request_, plan_, *measured));
    return measured;
  }

 private:
  Result<std::unique_ptr<TrialServer>> Started(int64_t start_ns,
                                               const std::function<bool()>& interrupted,
                                               int log_fd) {
    PINION_ASSIGN(plan_, PlanServer(request_));
    return TrialServer::Start(request_, plan_, start_ns, interrupted, log_fd);
  }

  const TrialRequest& request_;
  ServerPlan plan_;
  Result<std::unique_ptr<TrialServer>> server_;
};

}  // namespace

Result<TrialResult> RunTrial(const TrialRequest& request, int64_t start_ns,
                             const std::function<bool()>& interrupted) {
  PINION_ASSIGN(const ServerPlan plan, PlanServer(request));
  PINION_ASSIGN(TrialResult result, Measure(request, plan, start_ns, interrupted));
  if (!result.too_slow.empty()) return result;
  PINION_TRY(AddCommand(request, plan, result));
  if (request.engine.is_pinion() && request.ceilings) AddCeilings(request, plan, result);
  return result;
}

Result<PairResult> RunPair(const PairRequest& request, int64_t start_ns,
                           const std::function<bool()>& interrupted) {
  PINION_ASSIGN(const Descriptor log, OpenLog(request.sides[1].log));
  std::array<PairedServer, 2> servers = {PairedServer(request.sides[0]),
                                         PairedServer(request.sides[1])};
  servers[0].Start(start_ns, interrupted, STDERR_FILENO);
  servers[1].Start(start_ns, interrupted, log.get());
  PairResult measured =
      MeasureInTurns({servers[0].target(), servers[1].target()}, request, start_ns);
  return PairResult{servers[0].Described(std::move(measured[0])),
                    servers[1].Described(std::move(measured[1]))};
}

}  // namespace pinion::harness
