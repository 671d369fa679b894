#include "harness/report/export.h"

#include <cstdio>
#include <utility>

#include "engine/base/strings.h"
#include "harness/profile/command.h"

namespace pinion::harness {
namespace {

Json IntervalJson(const std::optional<Interval>& interval) {
  if (!interval) return nullptr;
  Json json;
  json.Set("low", interval->low);
  json.Set("high", interval->high);
  json.Set("coverage", interval->coverage);
  return json;
}

Json EstimateJson(const Estimate& estimate) {
  Json json;
  json.Set("n", static_cast<uint64_t>(estimate.n));
  json.Set("median", estimate.n ? Json(estimate.median) : Json());
  json.Set("mad", estimate.n ? Json(estimate.mad) : Json());
  json.Set("interval", IntervalJson(estimate.interval));
  return json;
}

Json SamplesJson(const std::vector<Sample>& samples) {
  Json list = Json::MakeArray();
  for (const Sample& sample : samples) {
    Json json;
    json.Set("round", sample.round);
    json.Set("confirmation", sample.confirmation);
    json.Set("value", sample.value);
    json.Set("suspect", sample.suspect);
    list.Append(std::move(json));
  }
  return list;
}

Json SeriesJson(const Series& series) {
  const MetricInfo* metric = FindMetric(series.metric);
  Json json;
  json.Set("metric", series.metric);
  json.Set("unit", metric ? metric->unit : "");
  json.Set("concurrency", series.concurrency);
  json.Set("estimate", EstimateJson(series.estimate));
  json.Set("samples", SamplesJson(series.samples));
  return json;
}

Json ComparisonJson(const Comparison& comparison) {
  Json json;
  json.Set("objective", Name(comparison.objective));
  json.Set("ratio_to_default", EstimateJson(comparison.ratio));
  json.Set("ratios", SamplesJson(comparison.ratios));
  return json;
}

Json CandidateJson(const Candidate& candidate) {
  Json settings = Json::MakeObject(), series = Json::MakeArray(), comparisons = Json::MakeArray();
  for (const Setting& setting : candidate.settings) settings.Set(setting.key, setting.value);
  for (const Series& one : candidate.series) series.Append(SeriesJson(one));
  for (const Comparison& one : candidate.comparisons) comparisons.Append(ComparisonJson(one));
  Json json;
  json.Set("id", candidate.id);
  json.Set("label", candidate.label);
  json.Set("is_default", candidate.is_anchor);
  json.Set("settings", std::move(settings));
  json.Set("options", candidate.options);
  json.Set("status", Name(candidate.status));
  json.Set("reason", candidate.reason);
  json.Set("log_tail", candidate.log_tail);
  json.Set("log_path", candidate.log_path);
  json.Set("same_as", candidate.same_as);
  json.Set("isa", candidate.isa);
  json.Set("dtype", candidate.dtype);
  json.Set("threads", candidate.threads);
  json.Set("ranks", candidate.ranks);
  json.Set("plan", candidate.plan);
  json.Set("series", std::move(series));
  json.Set("comparisons", std::move(comparisons));
  json.Set("suspect_reasons", candidate.suspect_reasons);
  json.Set("output_hash", candidate.output_hash);
  return json;
}

Json VerdictJson(const Results& results, const Verdict& verdict, const std::string& folder) {
  const LaunchCommands commands = LaunchCommandsOf(results, verdict, folder);
  Json json;
  json.Set("objective", verdict.objective);
  json.Set("outcome", Name(verdict.outcome));
  json.Set("sentence", verdict.sentence);
  json.Set("recommended", verdict.recommended);
  json.Set("ratio_to_default", EstimateJson(verdict.ratio));
  json.Set("best", verdict.best);
  json.Set("best_ratio_to_default", EstimateJson(verdict.best_ratio));
  json.Set("tied", verdict.tied);
  json.Set("floor", verdict.floor);
  json.Set("rounds", static_cast<uint64_t>(verdict.rounds));
  json.Set("confirmed", verdict.confirmed);
  json.Set("profile", commands.pinion.empty() ? Json() : Json(ProfileFile(verdict.objective)));
  json.Set("launch", commands.pinion);
  json.Set("launch_vllm", commands.vllm);
  return json;
}

// "out/x/" and "out/x" are one folder.
std::string ProfilePath(const std::string& folder, const std::string& objective) {
  const size_t end = folder.find_last_not_of('/');
  return (end == std::string::npos ? folder : folder.substr(0, end + 1)) + "/" +
         ProfileFile(objective);
}

// The program as the person called it ("build/pinion sweep ..." -> "build/pinion"), so that the
// commands in the report can be pasted.
std::string ProgramOf(const std::string& command_line) {
  const std::string first = Split(command_line, ' ').front();
  const bool ours = first == "pinion" || (first.size() > 7 && first.ends_with("/pinion"));
  return ours ? first : "pinion";
}

std::optional<EngineOptions> OptionsOf(const Results& results, const Candidate& candidate) {
  EngineOptions options;
  if (!FromJson(candidate.options, options)) return std::nullopt;
  options.model = results.model;
  return options;
}

// RFC 4180; a text that a spreadsheet would run as a formula is kept a text by a leading quote.
std::string CsvField(std::string text) {
  if (!text.empty() && std::string_view("=+-@\t\r").find(text[0]) != std::string_view::npos)
    text.insert(0, "'");
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string Number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

// The columns that say which candidate a row is about.
std::vector<std::string> CandidateFields(const Candidate& candidate) {
  std::vector<std::string> fields = {StrCat(candidate.id), CsvField(candidate.label),
                                     Name(candidate.status), CsvField(candidate.reason)};
  for (const char* key : {"threads_bind", "reserved_cpus", "kv_cache_space", "tensor_parallel",
                          "isa", "dtype", "max_num_batched_tokens", "max_num_seqs"}) {
    const Json* value = candidate.options.Find(key);
    if (!value || value->is_null())
      fields.emplace_back();
    else
      fields.push_back(CsvField(value->is_string() ? value->string() : value->Dump()));
  }
  fields.push_back(StrCat(candidate.threads));
  return fields;
}

std::vector<std::string> SeriesFields(const Series& series) {
  const MetricInfo* metric = FindMetric(series.metric);
  const auto& [n, median, mad, interval] = series.estimate;
  return {CsvField(series.metric),
          metric ? metric->unit : "",
          StrCat(series.concurrency),
          StrCat(n),
          n ? Number(median) : "",
          interval ? Number(interval->low) : "",
          interval ? Number(interval->high) : "",
          interval ? Number(interval->coverage) : ""};
}

Json ExpectedJson(const Candidate& candidate) {
  Json list = Json::MakeArray();
  for (const Series& series : candidate.series) {
    if (series.estimate.n == 0) continue;
    const MetricInfo* metric = FindMetric(series.metric);
    Json json;
    json.Set("metric", series.metric);
    json.Set("unit", metric ? metric->unit : "");
    json.Set("concurrency", series.concurrency);
    json.Set("n", static_cast<uint64_t>(series.estimate.n));
    json.Set("median", series.estimate.median);
    json.Set("interval", IntervalJson(series.estimate.interval));
    list.Append(std::move(json));
  }
  return list;
}

Json EvidenceJson(const Results& results, const Verdict& verdict, const std::string& folder) {
  Json json;
  json.Set("outcome", Name(verdict.outcome));
  json.Set("sentence", verdict.sentence);
  json.Set("ratio_to_default", EstimateJson(verdict.ratio));
  json.Set("floor", verdict.floor);
  json.Set("confirmed", verdict.confirmed);
  json.Set("finished", results.finished);
  json.Set("rounds", results.rounds_done);
  json.Set("confirmation_rounds", results.confirmation_rounds);
  json.Set("sweep", folder);
  json.Set("command_line", results.command_line);
  json.Set("version", results.version);
  json.Set("commit", results.commit);
  json.Set("started_at", results.started_at);
  json.Set("updated_at", results.updated_at);
  json.Set("workload", ToJson(results.definition.workload));
  return json;
}

}  // namespace

std::string ProfileFile(const std::string& objective) { return "profiles/" + objective + ".json"; }

Json ResultsJson(const Results& results, const std::string& folder) {
  Json json, candidates = Json::MakeArray(), verdicts = Json::MakeArray();
  for (const Candidate& candidate : results.candidates) candidates.Append(CandidateJson(candidate));
  for (const Verdict& verdict : results.verdicts)
    verdicts.Append(VerdictJson(results, verdict, folder));
  json.Set("model", results.model);
  json.Set("finished", results.finished);
  json.Set("version", results.version);
  json.Set("commit", results.commit);
  json.Set("command_line", results.command_line);
  json.Set("started_at", results.started_at);
  json.Set("updated_at", results.updated_at);
  json.Set("elapsed_s", results.elapsed_s);
  json.Set("rounds_done", results.rounds_done);
  json.Set("rounds_planned", results.rounds_planned);
  json.Set("confirmation_rounds", results.confirmation_rounds);
  json.Set("verdicts", std::move(verdicts));
  json.Set("candidates", std::move(candidates));
  json.Set("warnings", results.warnings);
  json.Set("machine", results.machine);
  json.Set("budget", results.budget);
  json.Set("model_facts", results.model_facts);
  json.Set("definition", ToJson(results.definition));
  return json;
}

std::string ResultsCsv(const Results& results) {
  std::string csv =
      "candidate,label,status,reason,threads_bind,reserved_cpus,kv_cache_space,tensor_parallel,isa,"
      "dtype,max_num_batched_tokens,max_num_seqs,threads,metric,unit,concurrency,n,median,low,high,"
      "coverage\r\n";
  for (const Candidate& candidate : results.candidates) {
    const std::string start = Join(CandidateFields(candidate), ",");
    for (const Series& series : candidate.series)
      csv += start + "," + Join(SeriesFields(series), ",") + "\r\n";
    if (candidate.series.empty()) csv += start + ",,,,,,,,\r\n";
  }
  return csv;
}

Result<std::optional<Profile>> ProfileOf(const Results& results, Objective objective,
                                         const std::string& folder) {
  const Verdict* verdict = results.FindVerdict(objective);
  if (!verdict || verdict->outcome == Outcome::kNoData) return std::nullopt;
  const Candidate* candidate = results.Find(verdict->recommended);
  if (!candidate)
    return Fail(ErrorCode::kCorrupt,
                StrCat("the verdict on ", verdict->objective,
                       " names no candidate of the sweep: ", verdict->recommended));
  Profile profile;
  profile.objective = verdict->objective;
  if (auto read = FromJson(candidate->options, profile.options); !read)
    return Unexpected(std::move(read).error().In("options of " + candidate->label));
  profile.options.model = results.model;
  profile.machine = results.machine;
  const Json* cpus = results.budget.Find("cpus");
  profile.cpus = cpus ? *cpus : Json::MakeArray();
  profile.expected = ExpectedJson(*candidate);
  profile.evidence = EvidenceJson(results, *verdict, folder);
  return profile;
}

LaunchCommands LaunchCommandsOf(const Results& results, const Verdict& verdict,
                                const std::string& folder) {
  const Candidate* candidate = results.Find(verdict.recommended);
  if (verdict.outcome == Outcome::kNoData || !candidate) return {};
  const auto options = OptionsOf(results, *candidate);
  if (!options) return {};
  LaunchCommands commands;
  commands.pinion = ShellText(
      {{}, {ProgramOf(results.command_line), "launch", ProfilePath(folder, verdict.objective)}});
  commands.vllm = VllmShellText(*options, candidate->plan);
  commands.vllm_lacks = Join(WithoutVllmCounterpart(*options), ", ");
  return commands;
}

}  // namespace pinion::harness
