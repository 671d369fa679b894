#include "harness/sweep/predict.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <set>

#include "engine/base/strings.h"
#include "engine/model/cost.h"
#include "kernels/isa.h"
#include "kernels/types.h"

namespace pinion::harness {
namespace {

template <typename Take>
Status ForEach(const Json& probe, const char* key, Take take) {
  const Json* list = probe.Find(key);
  if (!list || !list->is_array() || list->array().empty())
    return Fail(ErrorCode::kUsage,
                StrCat("no '", key, "' in it: give the output of `pinion probe --out FILE`"));
  for (const Json& one : list->array()) PINION_TRY(take(one));
  return {};
}

std::string DtypeOf(const EngineOptions& options, const DecoderSpec& model) {
  return options.dtype == "auto" ? model.checkpoint_dtype : options.dtype;
}

kernels::Dtype ParseDtype(const std::string& name) {
  for (const kernels::Dtype dtype : {kernels::Dtype::kF32, kernels::Dtype::kF16})
    if (name == kernels::Name(dtype)) return dtype;
  return kernels::Dtype::kBf16;
}

// Steps that compute the same thing, and what one pass of all of them costs.
struct Roof {
  double bytes_per_s = 0, flops_per_s = 0;
  double Seconds(const StepCost& cost) const {
    return std::max(static_cast<double>(cost.bytes()) / bytes_per_s,
                    static_cast<double>(cost.flops) / flops_per_s);
  }
};

StepCost Times(StepCost cost, uint64_t count) {
  return {cost.weight_bytes * count, cost.kv_bytes * count, cost.flops * count};
}

size_t Steps(size_t items, size_t per_step) { return (items + per_step - 1) / per_step; }

// All decode steps of sequences that run `together` at a time, `sequences` in all.
StepCost DecodeCost(const CostModel& model, const Workload& workload, size_t sequences,
                    size_t together) {
  const auto prompt = static_cast<size_t>(workload.prompt_len);
  const auto steps = static_cast<size_t>(workload.output_len) - 1;
  StepCost cost = Times(model.Weights(true), steps * Steps(sequences, together));
  for (size_t i = 0; i < steps; ++i) cost += Times(model.Rows(prompt + i, 1, 1), sequences);
  return cost;
}

StepCost PrefillCost(const CostModel& model, const Workload& workload, size_t sequences,
                     size_t tokens_per_step) {
  const auto prompt = static_cast<size_t>(workload.prompt_len);
  StepCost cost = Times(model.Weights(true), Steps(sequences * prompt, tokens_per_step));
  cost += Times(model.Rows(0, prompt, 1), sequences);
  return cost;
}

std::string Printed(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

Result<ProbedMachine> ProbedMachine::Parse(const Json& probe) {
  ProbedMachine machine;
  PINION_TRY(ForEach(probe, "memory_read", [&](const Json& one) -> Status {
    PINION_ASSIGN(const int threads, Require<int>(one, "threads"));
    PINION_ASSIGN(const double rate, Require<double>(one, "bytes_per_s"));
    machine.reads_.emplace_back(threads, rate);
    return {};
  }));
  PINION_TRY(ForEach(probe, "compute", [&](const Json& one) -> Status {
    Compute compute;
    PINION_ASSIGN(compute.isa, Require<std::string>(one, "isa"));
    PINION_ASSIGN(compute.dtype, Require<std::string>(one, "dtype"));
    PINION_ASSIGN(compute.threads, Require<int>(one, "threads"));
    PINION_ASSIGN(compute.flops_per_s, Require<double>(one, "flops_per_s"));
    if (compute.threads > 0) machine.computes_.push_back(std::move(compute));
    return {};
  }));
  std::sort(machine.reads_.begin(), machine.reads_.end());
  return machine;
}

double ProbedMachine::ReadBytesPerS(int threads) const {
  if (threads <= reads_.front().first) return reads_.front().second;
  for (size_t i = 1; i < reads_.size(); ++i) {
    const auto& [few, slow] = reads_[i - 1];
    const auto& [many, fast] = reads_[i];
    if (threads <= many) return slow + (fast - slow) * (threads - few) / std::max(1, many - few);
  }
  return reads_.back().second;
}

Result<double> ProbedMachine::FlopsPerS(const std::string& isa, const std::string& dtype,
                                        int threads) const {
  double best = 0;
  for (const Compute& one : computes_) {
    // bfloat16 and float16 may also be widened; float32 has no faster way.
    const bool usable = one.dtype == dtype || one.dtype == "float32";
    if (one.isa == isa && usable) best = std::max(best, one.flops_per_s / one.threads * threads);
  }
  if (best > 0) return best;
  return Fail(ErrorCode::kUsage, StrCat("the probe has not measured ISA path '", isa, "'; it has ",
                                        Join(Isas(), ", ")));
}

std::vector<std::string> ProbedMachine::Isas() const {
  std::set<kernels::Isa> found;
  for (const Compute& one : computes_)
    if (const auto isa = kernels::ParseIsa(one.isa)) found.insert(*isa);
  std::vector<std::string> names;
  for (const kernels::Isa isa : found) names.push_back(kernels::Name(isa));
  return names;
}

Result<Prediction> Predict(const Point& point, const DecoderSpec& model, const Workload& workload,
                           const ProbedMachine& machine) {
  const EngineOptions& options = point.options;
  const std::string dtype = DtypeOf(options, model);
  const std::string isa = options.isa == "auto" ? machine.Isas().back() : options.isa;
  const int threads = point.plan.total_threads();
  Roof roof;
  roof.bytes_per_s = machine.ReadBytesPerS(threads);
  PINION_ASSIGN(roof.flops_per_s, machine.FlopsPerS(isa, dtype, threads));
  const CostModel cost(model, ParseDtype(dtype), options.tensor_parallel);
  const auto batch = static_cast<size_t>(workload.num_prompts);
  const size_t together = std::min(batch, static_cast<size_t>(options.max_num_seqs));
  const auto per_step = static_cast<size_t>(options.max_num_batched_tokens);
  const StepCost decode = DecodeCost(cost, workload, batch, together);
  const double batch_s =
      roof.Seconds(PrefillCost(cost, workload, batch, per_step)) + roof.Seconds(decode);
  Prediction prediction;
  prediction.output_tokens_per_s = static_cast<double>(batch) * workload.output_len / batch_s;
  prediction.ttft_s = roof.Seconds(PrefillCost(cost, workload, 1, per_step));
  prediction.tpot_s =
      roof.Seconds(DecodeCost(cost, workload, 1, 1)) / std::max(1, workload.output_len - 1);
  prediction.decode_bound_by_bytes = static_cast<double>(decode.bytes()) / roof.bytes_per_s >=
                                     static_cast<double>(decode.flops) / roof.flops_per_s;
  return prediction;
}

Json ToJson(const Prediction& prediction) {
  Json json = Json::MakeObject();
  json.Set("output_tokens_per_s", prediction.output_tokens_per_s);
  json.Set("ttft_s", prediction.ttft_s);
  json.Set("tpot_s", prediction.tpot_s);
  json.Set("decode_bound_by", prediction.decode_bound_by_bytes ? "bytes" : "operations");
  return json;
}

Result<Json> PredictAll(const std::vector<Point>& points, const Host& host,
                        const DecoderSpec& model, const std::string& model_name,
                        const Workload& workload, const Json& probe) {
  PINION_ASSIGN(const ProbedMachine machine, ProbedMachine::Parse(probe));
  std::vector<std::pair<double, Json>> ranked;
  for (const Point& point : points) {
    Json settings = Json::MakeObject(), one = Json::MakeObject();
    for (const Setting& setting : point.settings) settings.Set(setting.key, setting.value);
    one.Set("label", point.label);
    one.Set("settings", std::move(settings));
    one.Set("options", ToJson(point.options));
    std::string infeasible = point.infeasible;
    std::optional<Prediction> prediction;
    if (infeasible.empty()) {
      const auto predicted = Predict(point, model, workload, machine);
      if (predicted) prediction = *predicted;
      if (!predicted) infeasible = predicted.error().message;
      one.Set("threads", point.plan.total_threads());
    }
    one.Set("predicted", prediction ? ToJson(*prediction) : Json());
    one.Set("infeasible", infeasible);
    ranked.emplace_back(prediction ? prediction->output_tokens_per_s : -1, std::move(one));
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  Json candidates = Json::MakeArray();
  for (auto& [rate, one] : ranked) candidates.Append(std::move(one));
  Json plan = Json::MakeObject();
  plan.Set("prediction", true);
  plan.Set("model", model_name);
  plan.Set("machine", MachineFingerprint(host.machine));
  const Json* probed = probe.Find("machine");
  plan.Set("probe_machine", probed ? *probed : Json());
  plan.Set("candidates", std::move(candidates));
  return plan;
}

std::string RenderPlan(const Json& plan) {
  std::string text =
      "PREDICTION: nothing was run. The most that the probe's ceilings allow, best first.\n\n"
      "  tokens/s (batch)  first token [ms]  per token [ms]  configuration\n";
  for (const Json& one : plan.Find("candidates")->array()) {
    const Json& predicted = *one.Find("predicted");
    const std::string& label = one.Find("label")->string();
    if (predicted.is_null()) {
      text += StrCat("                  cannot run there: ", label, ": ",
                     one.Find("infeasible")->string(), "\n");
      continue;
    }
    text += Printed("  %16.4g", predicted.Find("output_tokens_per_s")->number()) +
            Printed("  %16.4g", predicted.Find("ttft_s")->number() * 1e3) +
            Printed("  %14.4g", predicted.Find("tpot_s")->number() * 1e3) + "  " + label + "\n";
  }
  return text;
}

}  // namespace pinion::harness
