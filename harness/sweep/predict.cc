#include "harness/sweep/predict.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/decoder/cost.h"
#include "engine/run/capacity.h"
#include "engine/run/replicas.h"
#include "engine/run/start.h"
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

// Physical cores that a plan computes on; under nobind the threads are spread over all of them.
CoresOfNodes CoresOf(const Plan& plan, const Machine& machine) {
  std::map<int, std::set<int>> taken, all;
  for (const Cpu& cpu : machine.cpus) all[cpu.node].insert(cpu.core);
  double unbound = 0, cores = 0;
  for (const RankPlan& rank : plan.ranks) {
    if (rank.cpus.empty()) unbound += rank.threads;
    for (const int id : rank.cpus)
      if (const Cpu* cpu = machine.Find(id)) taken[cpu->node].insert(cpu->core);
  }
  for (const auto& [node, of_node] : all) cores += static_cast<double>(of_node.size());
  CoresOfNodes count;
  for (const auto& [node, of_node] : taken) count[node] = static_cast<double>(of_node.size());
  if (unbound == 0) return count;
  for (const auto& [node, of_node] : all)
    count[node] = static_cast<double>(of_node.size()) * std::min(1.0, unbound / cores);
  return count;
}

double CoreCount(const CoresOfNodes& cores) {
  double sum = 0;
  for (const auto& [node, here] : cores) sum += here;
  return sum;
}

// The replicas that a batch keeps busy, and their cores.
struct BusyReplicas {
  size_t busy = 1;
  double cores = 0, most_cores = 0;  // per replica: on average, and of the largest
  CoresOfNodes alone, together;      // of the first replica, and of all that are busy

  BusyReplicas(const Point& point, size_t batch, const Machine& machine) {
    const int replicas = point.configuration.replicas;
    busy = std::min(static_cast<size_t>(replicas), batch);
    for (int index = 0; index < replicas; ++index) {
      const CoresOfNodes own = CoresOf(PlanOfReplica(point.plan, replicas, index), machine);
      if (index == 0) alone = own;
      if (static_cast<size_t>(index) < busy)
        for (const auto& [node, here] : own) together[node] += here;
      cores += CoreCount(own) / replicas;
      most_cores = std::max(most_cores, CoreCount(own));
    }
  }
};

// Sequences of the load that one step can hold: all, or as many as --kv-cache-space does.
Result<size_t> SequencesAtOnce(const EngineOptions& options, const PlannedModel& model,
                               const LoadPlan& load) {
  const auto most = static_cast<size_t>(options.max_num_seqs);
  if (!options.kv_cache_bytes) return most;
  PINION_ASSIGN(const std::vector<RankNeeds> needs, NeedsFor(options, model));
  const auto tokens =
      static_cast<size_t>(load.shape.prompt_len()) + static_cast<size_t>(load.shape.output_len());
  const size_t blocks = *options.kv_cache_bytes / LargestBlockBytes(needs);
  return std::clamp<size_t>(blocks / BlocksOfSequence(needs, options, tokens), 1, most);
}

StepCost Times(StepCost cost, uint64_t count) {
  return {cost.weight_bytes * count, cost.kv_bytes * count, cost.flops * count,
          cost.int8_ops * count};
}

// The cost of a model under an offline batch, with the expected number of experts read, or the
// least.
class Load {
 public:
  Load(const CostModel& model, const LoadPlan& batch, bool least_experts)
      : model_(model), batch_(batch), least_experts_(least_experts) {}

  // All decode steps of `sequences` sequences, of which `together` run at a time.
  Work Decode(size_t sequences, size_t together) const {
    const auto prompt = static_cast<size_t>(batch_.shape.prompt_len());
    const auto tokens = static_cast<size_t>(batch_.shape.output_len()) - 1;
    Work work = Passes(sequences, together, tokens);
    for (size_t i = 0; i < tokens; ++i)
      work.cost += Times(model_.Rows(prompt + i, 1, 1), sequences);
    return work;
  }

  Work Prefill(size_t sequences, size_t tokens_per_step) const {
    const auto prompt = static_cast<size_t>(batch_.shape.prompt_len());
    Work work = Passes(sequences * prompt, tokens_per_step, 1);
    work.cost += Times(model_.Rows(0, prompt, 1), sequences);
    return work;
  }

  // `sequences`: one replica's share of the batch, of which `at_once` run at a time.
  Figures Under(const Roofs& roofs, size_t sequences, size_t at_once,
                const EngineOptions& options) const {
    const auto per_step = static_cast<size_t>(options.max_num_batched_tokens);
    const double batch_s = roofs.together.Seconds(Prefill(sequences, per_step)) +
                           roofs.together.Seconds(Decode(sequences, std::min(sequences, at_once)));
    return {static_cast<double>(batch_.num_prompts) * batch_.shape.output_len() / batch_s,
            roofs.alone.Seconds(Prefill(1, per_step)),
            roofs.alone.Seconds(Decode(1, 1)) / std::max(1, batch_.shape.output_len() - 1)};
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
  const LoadPlan& batch_;
  bool least_experts_;
};

}  // namespace

Result<Prediction> Predict(const Point& point, const PlannedModel& model, const LoadPlan& load,
                           const MachineCeilings& ceilings, const Machine& machine,
                           uint64_t cache_bytes) {
  const EngineOptions& options = point.configuration.options;
  const kernels::Dtype dtype = model.formats.dtype;
  const std::string isa = options.isa == "auto" ? ceilings.Isas().back() : options.isa;
  const auto batch = static_cast<size_t>(load.num_prompts);
  const BusyReplicas replicas(point, batch, machine);
  Roof roof, raised;
  roof.bytes_per_s = ceilings.ReadBytesPerS(replicas.alone);
  PINION_ASSIGN(roof.peak, ceilings.PeakOf(isa, kernels::Name(dtype), replicas.cores));
  raised.bytes_per_s = ceilings.ReadBytesPerSAtMost();
  raised.cache_bytes = cache_bytes;
  PINION_ASSIGN(raised.peak, ceilings.PeakAtMost(isa, replicas.most_cores));
  const Roofs roofs(roof, ceilings.ReadBytesPerS(replicas.together), replicas.busy);
  PINION_ASSIGN(const kernels::KvDtype kv_dtype, ResolveKvDtype(options, dtype));
  const CostModel cost(model.spec, model.formats, kv_dtype, options.tensor_parallel);
  const Load expected(cost, load, false);
  PINION_ASSIGN(const size_t at_once, SequencesAtOnce(options, model, load));
  Prediction prediction;
  // The replica that ends last has the largest share of the batch; the bound assumes the least
  // share, and prefixes that sequences share, so that all of them fit.
  const size_t most = (batch + replicas.busy - 1) / replicas.busy, least = batch / replicas.busy;
  static_cast<Figures&>(prediction) = expected.Under(roofs, most, at_once, options);
  prediction.at_best = Load(cost, load, true)
                           .Under({raised, raised.bytes_per_s, replicas.busy}, least,
                                  static_cast<size_t>(options.max_num_seqs), options);
  const Work decode = expected.Decode(most, std::min(most, at_once));
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
  const auto figures = [](const Figures& of) -> Json {
    return Json::Object{{"output_tokens_per_s", of.output_tokens_per_s},
                        {"ttft_s", of.ttft_s},
                        {"tpot_s", of.tpot_s}};
  };
  Json json = figures(prediction);
  json.Set("decode_bound_by", prediction.decode_bound_by_bytes ? "bytes" : "operations");
  json.Set("at_best", figures(prediction.at_best));
  return json;
}

}  // namespace pinion::harness
