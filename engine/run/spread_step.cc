#include "engine/run/spread_step.h"

#include <algorithm>

namespace pinion {

std::optional<SpreadStep> SpreadStepOf(const StepWork& work, const std::optional<LinkCost>& link) {
  if (!link || work.steps == 0) return std::nullopt;
  const auto steps = static_cast<double>(work.steps);
  SpreadStep step;
  step.steps = work.steps;
  step.measured_s = work.seconds / steps;
  step.compute_s = std::max(0.0, work.seconds - work.exchanged.seconds) / steps;
  step.link_s = link->SecondsFor(work.exchanged) / steps;
  step.calls = static_cast<double>(work.exchanged.calls) / steps;
  step.delays = static_cast<double>(work.exchanged.delays) / steps;
  step.bytes = static_cast<double>(work.exchanged.bytes) / steps;
  return step;
}

Json ToJson(const std::optional<SpreadStep>& step) {
  if (!step) return {};
  return Json::Object{{"steps", step->steps},
                      {"measured_s", step->measured_s},
                      {"predicted_s", step->predicted_s()},
                      {"compute_s", step->compute_s},
                      {"link_s", step->link_s},
                      {"calls", step->calls},
                      {"delays", step->delays},
                      {"bytes", step->bytes}};
}

Json LinkJson(const LinkCost& link, const EngineStats& stats, const EngineOptions& options) {
  Json json = ToJson(link);
  const bool staged = options.pipeline_parallel > 1;
  json.Set("prefill_step", staged ? Json() : ToJson(SpreadStepOf(stats.prefill, link)));
  json.Set("decode_step", staged ? Json() : ToJson(SpreadStepOf(stats.decode, link)));
  return json;
}

}  // namespace pinion
