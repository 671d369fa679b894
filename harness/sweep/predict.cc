#include "harness/sweep/predict.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <set>

#include "engine/base/strings.h"
#include "engine/model/cost.h"
#include "engine/run/replicas.h"
#include "engine/run/start.h"
#include "kernels/isa.h"
#include "kernels/types.h"

namespace pinion::harness {
namespace {

// The cost of steps that compute the same thing.
struct Work {
  StepCost cost;
  size_t steps = 0;
};

struct Roof {
  double bytes_per_s = 0;
  Peak peak;
  uint64_t cache_bytes = 0;  // per step, that need not come from memory

  double BytesSeconds(const Work& work) const {
    const uint64_t kept = cache_bytes * work.steps;
    return static_cast<double>(work.cost.bytes() - std::min(kept, work.cost.bytes())) / bytes_per_s;
  }
  double ComputeSeconds(const Work& work) const {
    return static_cast<double>(work.cost.flops) / peak.flops_per_s +
           static_cast<double>(work.cost.int8_ops) / peak.int8_ops_per_s;
  }
  double Seconds(const Work& work) const {
    return std::max(BytesSeconds(work), ComputeSeconds(work));
  }
};

// The ceilings of one replica: with one request it has all of the machine's memory and caches, with
// a batch the busy replicas share them. Each computes on its own threads.
struct Roofs {
  Roof alone, together;

  Roofs(Roof one, double bytes_per_s_together, size_t busy) : alone(one), together(one) {
    together.bytes_per_s = bytes_per_s_together / static_cast<double>(busy);
    together.cache_bytes /= busy;
  }
};

// The replicas that a batch keeps busy, and their threads.
struct BusyReplicas {
  size_t busy = 1;
  int threads = 0, most_threads = 0;  // per replica: on average, and of the largest

  BusyReplicas(const Point& point, size_t batch) {
    const auto replicas = static_cast<size_t>(point.configuration.replicas);
    busy = std::min(replicas, batch);
    threads = std::max(1, point.plan.total_threads() / point.configuration.replicas);
    for (int index = 0; index < point.configuration.replicas; ++index)
      most_threads =
          std::max(most_threads,
                   PlanOfReplica(point.plan, point.configuration.replicas, index).total_threads());
  }
};

StepCost Times(StepCost cost, uint64_t count) {
  return {cost.weight_bytes * count, cost.kv_bytes * count, cost.flops * count,
          cost.int8_ops * count};
}

// The cost of a model under a workload, with the expected number of experts read, or the least.
class Load {
 public:
  Load(const CostModel& model, const Workload& workload, bool least_experts)
      : model_(model), workload_(workload), least_experts_(least_experts) {}

  // All decode steps of `sequences` sequences, of which `together` run at a time.
  Work Decode(size_t sequences, size_t together) const {
    const auto prompt = static_cast<size_t>(workload_.prompt_len);
    const auto tokens = static_cast<size_t>(workload_.output_len) - 1;
    Work work = Passes(sequences, together, tokens);
    for (size_t i = 0; i < tokens; ++i)
      work.cost += Times(model_.Rows(prompt + i, 1, 1), sequences);
    return work;
  }

  Work Prefill(size_t sequences, size_t tokens_per_step) const {
    const auto prompt = static_cast<size_t>(workload_.prompt_len);
    Work work = Passes(sequences * prompt, tokens_per_step, 1);
    work.cost += Times(model_.Rows(0, prompt, 1), sequences);
    return work;
  }

  // `sequences`: one replica's share of the batch.
  Figures Under(const Roofs& roofs, size_t sequences, const EngineOptions& options) const {
    const size_t at_once = std::min(sequences, static_cast<size_t>(options.max_num_seqs));
    const auto per_step = static_cast<size_t>(options.max_num_batched_tokens);
    const double batch_s = roofs.together.Seconds(Prefill(sequences, per_step)) +
                           roofs.together.Seconds(Decode(sequences, at_once));
    return {static_cast<double>(workload_.num_prompts) * workload_.output_len / batch_s,
            roofs.alone.Seconds(Prefill(1, per_step)),
            roofs.alone.Seconds(Decode(1, 1)) / std::max(1, workload_.output_len - 1)};
  }

 private:
  // The weights that `rows` rows read, with `per_step` rows in a step, `times` times.
  Work Passes(size_t rows, size_t per_step, size_t times) const {
    Work work;
    const auto add = [&](size_t rows_of_step, size_t steps) {
      StepCost weights = model_.Weights(true);
      weights += least_experts_ ? model_.LeastExperts() : model_.ExpectedExperts(rows_of_step);
      work.cost += Times(weights, steps * times);
      work.steps += steps * times;
    };
    add(per_step, rows / per_step);
    if (rows % per_step > 0) add(rows % per_step, 1);
    return work;
  }

  const CostModel& model_;
  const Workload& workload_;
  bool least_experts_;
};

std::string Printed(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

Result<Prediction> Predict(const Point& point, const DecoderSpec& model, const Workload& workload,
                           const ProbedMachine& machine, uint64_t cache_bytes) {
  const EngineOptions& options = point.configuration.options;
  PINION_ASSIGN(const kernels::Dtype dtype, ResolveDtype(options, model));
  const std::string isa = options.isa == "auto" ? machine.Isas().back() : options.isa;
  const auto batch = static_cast<size_t>(workload.num_prompts);
  const BusyReplicas replicas(point, batch);
  Roof roof, raised;
  roof.bytes_per_s = machine.ReadBytesPerS(replicas.threads);
  PINION_ASSIGN(roof.peak, machine.PeakOf(isa, kernels::Name(dtype), replicas.threads));
  raised.bytes_per_s = machine.ReadBytesPerSAtMost();
  raised.cache_bytes = cache_bytes;
  PINION_ASSIGN(raised.peak, machine.PeakAtMost(isa, replicas.most_threads));
  const double together = machine.ReadBytesPerS(replicas.threads * static_cast<int>(replicas.busy));
  const Roofs roofs(roof, together, replicas.busy);
  PINION_ASSIGN(const kernels::KvDtype kv_dtype, ResolveKvDtype(options, dtype));
  const CostModel cost(model, dtype, kv_dtype, options.tensor_parallel);
  const Load load(cost, workload, false);
  Prediction prediction;
  // The replica that ends last has the largest share of the batch; the bound assumes the least
  // share.
  const size_t most = (batch + replicas.busy - 1) / replicas.busy, least = batch / replicas.busy;
  static_cast<Figures&>(prediction) = load.Under(roofs, most, options);
  prediction.at_best =
      Load(cost, workload, true).Under({raised, raised.bytes_per_s, replicas.busy}, least, options);
  const Work decode = load.Decode(most, std::min(most, static_cast<size_t>(options.max_num_seqs)));
  prediction.decode_bound_by_bytes =
      roofs.together.BytesSeconds(decode) >= roofs.together.ComputeSeconds(decode);
  return prediction;
}

uint64_t CacheBytes(const Machine& machine) {
  constexpr uint64_t kBeforeTheLast = uint64_t{2} << 20;  // no x86 core has a larger private cache
  std::set<int> domains, cores;
  for (const Cpu& cpu : machine.cpus) {
    domains.insert(cpu.l3);
    cores.insert(cpu.core);
  }
  return domains.size() * machine.l3_bytes + cores.size() * kBeforeTheLast;
}

Json ToJson(const Prediction& prediction) {
  const auto figures = [](const Figures& of) {
    Json json = Json::MakeObject();
    json.Set("output_tokens_per_s", of.output_tokens_per_s);
    json.Set("ttft_s", of.ttft_s);
    json.Set("tpot_s", of.tpot_s);
    return json;
  };
  Json json = figures(prediction);
  json.Set("decode_bound_by", prediction.decode_bound_by_bytes ? "bytes" : "operations");
  json.Set("at_best", figures(prediction.at_best));
  return json;
}

Result<Json> PredictAll(const std::vector<Point>& points, const Host& host,
                        const std::string& model_name, const Workload& workload,
                        const Json& probe) {
  PINION_ASSIGN(const ProbedMachine machine, ProbedMachine::Parse(probe));
  const uint64_t cache_bytes = CacheBytes(host.machine);
  std::vector<std::pair<double, Json>> ranked;
  for (const Point& point : points) {
    Json settings = Json::MakeObject(), one = Json::MakeObject();
    for (const Setting& setting : point.settings) settings.Set(setting.key, setting.value);
    one.Set("label", point.label);
    one.Set("settings", std::move(settings));
    one.Set("options", ToJson(point.configuration.options));
    std::string infeasible = point.infeasible;
    std::optional<Prediction> prediction;
    if (infeasible.empty()) {
      PINION_ASSIGN(const DecoderSpec model, SpecFor(point.configuration.options));
      const auto predicted = Predict(point, model, workload, machine, cache_bytes);
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
  const auto name = [&](const char* key) {
    const Json* machine = plan.Find(key);
    const Json* model = machine ? machine->Find("cpu_model") : nullptr;
    return model && model->is_string() ? model->string() : std::string("an unnamed machine");
  };
  std::string text =
      StrCat("PREDICTION for ", name("machine"), " from ceilings probed on ", name("probe_machine"),
             ":\nnothing was run. Limits by the ceilings, best first.\n\n"
             "  tokens/s (batch)  first token [ms]  per token [ms]  configuration\n");
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
