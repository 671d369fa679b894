#include <utility>

#include "harness/load/slo_report.h"
#include "harness/report/answer.h"
#include "harness/report/export.h"
#include "harness/report/frontier.h"
#include "harness/report/recommend.h"
#include "harness/report/words.h"

namespace pinion::harness {

Json IntervalJson(const std::optional<Interval>& interval) {
  if (!interval) return nullptr;
  return Json::Object{
      {"low", interval->low}, {"high", interval->high}, {"coverage", interval->coverage}};
}

Json EstimateJson(const Estimate& estimate) {
  return Json::Object{{"n", static_cast<uint64_t>(estimate.n)},
                      {"median", estimate.n ? Json(estimate.median) : Json()},
                      {"mad", estimate.n ? Json(estimate.mad) : Json()},
                      {"interval", IntervalJson(estimate.interval)}};
}

namespace {

Json SamplesJson(const std::vector<Sample>& samples) {
  Json list = Json::MakeArray();
  for (const Sample& sample : samples) {
    list.Append(Json::Object{{"round", sample.round},
                             {"confirmation", sample.confirmation},
                             {"value", sample.value},
                             {"suspect", sample.suspect}});
  }
  return list;
}

Json SeriesJson(const Series& series) {
  const MetricInfo* metric = FindMetric(series.metric);
  Json json = Json::Object{{"metric", series.metric}, {"unit", metric ? metric->unit : ""}};
  SetLevel(series.level, json);
  json.Set("estimate", EstimateJson(series.estimate));
  json.Set("samples", SamplesJson(series.samples));
  return json;
}

Json SloJson(const SloFinding& slo) {
  SloReport report;
  report.options = slo.options;
  report.boundary = slo.boundary;
  Json json = ToJson(report);  // without the server's address
  std::erase_if(json.object(),
                [](const auto& item) { return item.first == "url" || item.first == "model_id"; });
  return json;
}

Json DistributionJson(const Distribution& distribution) {
  Json json = Json::Object{{"metric", distribution.metric},
                           {"n", static_cast<uint64_t>(distribution.n)},
                           {"quantiles", distribution.quantiles}};
  SetLevel(distribution.level, json);
  return json;
}

Json ComparisonJson(const Comparison& comparison) {
  return Json::Object{{"objective", Name(comparison.objective)},
                      {"ratio_to_default", EstimateJson(comparison.ratio)},
                      {"ratios", SamplesJson(comparison.ratios)}};
}

Json CandidateJson(const Candidate& candidate) {
  Json settings = Json::MakeObject(), series = Json::MakeArray(), comparisons = Json::MakeArray();
  for (const Setting& setting : candidate.settings) settings.Set(setting.key, setting.value);
  for (const Series& one : candidate.series) series.Append(SeriesJson(one));
  Json distributions = Json::MakeArray();
  for (const Distribution& one : candidate.distributions)
    distributions.Append(DistributionJson(one));
  for (const Comparison& one : candidate.comparisons) comparisons.Append(ComparisonJson(one));
  Json json;
  json.Set("id", candidate.id);
  json.Set("label", candidate.label);
  json.Set("engine", candidate.engine);
  json.Set("is_default", candidate.is_baseline);
  json.Set("settings", std::move(settings));
  json.Set("options", ToJson(candidate.configuration.options));
  json.Set("status", Name(candidate.status));
  json.Set("reason", candidate.reason);
  json.Set("log_tail", candidate.log_tail);
  json.Set("log_path", candidate.log_path);
  json.Set("same_as", candidate.same_as);
  json.Set("isa", candidate.isa);
  json.Set("dtype", candidate.dtype);
  json.Set("threads", candidate.threads);
  json.Set("ranks", candidate.ranks);
  json.Set("command", candidate.command);
  json.Set("plan", candidate.plan.ranks.empty() ? Json() : ToJson(candidate.plan));
  json.Set("predicted", candidate.predicted);
  json.Set("series", std::move(series));
  json.Set("distributions", std::move(distributions));
  json.Set("no_ceilings_because", candidate.no_ceilings_because);
  json.Set("slo", candidate.slo ? SloJson(*candidate.slo) : Json());
  json.Set("comparisons", std::move(comparisons));
  json.Set("suspect_reasons", candidate.suspect_reasons);
  json.Set("trials", candidate.trials);
  json.Set("seconds", candidate.seconds);
  return json;
}

Json VerdictJson(const Results& results, const Verdict& verdict, const std::string& folder) {
  const LaunchCommands commands = LaunchCommandsOf(results, verdict, folder);
  Json json;
  json.Set("objective", verdict.objective);
  json.Set("outcome", Name(verdict.outcome));
  json.Set("sentence", Sentence(results, verdict));
  json.Set("recommended", verdict.recommended);
  json.Set("ratio_to_default", EstimateJson(verdict.ratio));
  json.Set("best", verdict.best);
  json.Set("best_ratio_to_default", EstimateJson(verdict.best_ratio));
  json.Set("tied", verdict.tied);
  json.Set("runner_up", verdict.runner_up ? Json(*verdict.runner_up) : Json());
  json.Set("ratio_to_runner_up",
           verdict.runner_up ? EstimateJson(verdict.runner_up_ratio) : Json());
  json.Set("comparisons", static_cast<int64_t>(verdict.comparisons));
  json.Set("floor", verdict.floor);
  json.Set("rounds", static_cast<uint64_t>(verdict.rounds));
  json.Set("confirmed", verdict.confirmed);
  json.Set("profile", commands.pinion.empty() ? Json() : Json(ProfileFile(verdict.objective)));
  json.Set("launch", commands.pinion + commands.other);  // one of the two is empty
  json.Set("launch_vllm", commands.vllm);
  json.Set("launch_vllm_lacks", Json(commands.vllm_lacks));
  json.Set("launch_llama_cpp", commands.llama_cpp);
  json.Set("launch_llama_cpp_lacks", Json(commands.llama_cpp_lacks));
  return json;
}

// The noise of each objective, which limits the differences that can be resolved:
// [{"objective","pairs","autocorrelation","mad","floor"}].
Json NoiseJson(const Results& results) {
  Json list = Json::MakeArray();
  for (size_t i = 0; i < results.noise.size(); ++i) {
    list.Append(Json::Object{{"objective", Name(results.definition.objectives[i])},
                             {"pairs", static_cast<uint64_t>(results.noise[i].pairs)},
                             {"autocorrelation", results.noise[i].autocorrelation},
                             {"mad", results.noise[i].mad},
                             {"floor", results.floors[i]}});
  }
  return list;
}

Json OrNull(const std::optional<double>& number) { return number ? Json(*number) : Json(); }

Json LoadsJson(const MeasuredLoads& loads) {
  Json list = Json::MakeArray();
  for (const MeasuredLoad& load : loads.each) {
    Json one = Json::Object{{"trials", static_cast<uint64_t>(load.trials)},
                            {"without_steady_part", static_cast<uint64_t>(load.whole)},
                            {"start_s", OrNull(load.start_s)},
                            {"length_s", OrNull(load.length_s)},
                            {"requests", load.requests}};
    if (load.by_time) one.Set("ended_by_time", static_cast<uint64_t>(*load.by_time));
    SetLevel(load.level, one);
    list.Append(std::move(one));
  }
  return Json::Object{{"each", std::move(list)},
                      {"warm_up_s", OrNull(loads.warm_up_s)},
                      {"trials", static_cast<uint64_t>(loads.trials)},
                      {"generator_apart", static_cast<uint64_t>(loads.apart)}};
}

// Leaves out the topology: it is long, and results.db has it.
Json ShortProvenance(Json provenance) {
  if (provenance.is_object())
    std::erase_if(provenance.object(),
                  [](const auto& item) { return item.first == "topology_xml"; });
  return provenance;
}

}  // namespace

Json ResultsJson(const Results& results, const std::string& folder) {
  Json json, candidates = Json::MakeArray(), verdicts = Json::MakeArray();
  for (const Candidate& candidate : results.candidates) candidates.Append(CandidateJson(candidate));
  for (const Verdict& verdict : results.verdicts)
    verdicts.Append(VerdictJson(results, verdict, folder));
  json.Set("model", results.model);
  json.Set("finished", results.finished);
  json.Set("answer", Answer(results));
  json.Set("version", results.version);
  json.Set("commit", results.commit);
  json.Set("command_line", results.command_line);
  json.Set("started_at", results.started_at);
  json.Set("updated_at", results.updated_at);
  json.Set("elapsed_s", results.elapsed_s);
  json.Set("rounds_done", results.rounds_done);
  json.Set("rounds_planned", results.rounds_planned);
  json.Set("confirmation_rounds", results.confirmation_rounds);
  json.Set("calibration_rounds", results.calibration_rounds);
  json.Set("batch_prompts", results.batch_prompts);
  json.Set("loads", LoadsJson(results.loads));
  json.Set("noise", NoiseJson(results));
  json.Set("verdicts", std::move(verdicts));
  json.Set("front", FrontJson(FrontOf(results)));
  json.Set("candidates", std::move(candidates));
  json.Set("warnings", results.warnings);
  json.Set("machine", results.machine);
  json.Set("budget", results.budget);
  json.Set("nodes", results.nodes);
  json.Set("model_facts", results.model_facts);
  json.Set("provenance", ShortProvenance(results.provenance));
  json.Set("definition", ToJson(results.definition));
  return json;
}

}  // namespace pinion::harness
