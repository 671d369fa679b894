#include <utility>
#include <vector>

#include "engine/base/strings.h"
#include "harness/artifacts/expected.h"
#include "harness/artifacts/makers.h"
#include "harness/artifacts/names.h"

namespace pinion::harness {
namespace {

constexpr size_t kMostOfUid = 40;  // Grafana's limit

// A live series beside the expected values of its metric. `expression` has "{}" in place of the
// labels that choose the model.
struct LiveSeries {
  std::string expression;
  const char* legend;
  const char* metric = "";  // of ExpectedOf; "": nothing was measured that would be the same
};

struct Panel {
  const char* title;
  const char* unit;  // Grafana's
  std::vector<LiveSeries> series;
};

std::string Rate(const std::string& name) {
  return StrCat("sum(rate(vllm:", name, "{}[$__rate_interval]))");
}

std::string Quantile(const char* quantile, const std::string& name) {
  return StrCat("histogram_quantile(", quantile, ", sum by (le) (rate(vllm:", name,
                "_bucket{}[$__rate_interval])))");
}

// A panel's live series and the metrics of harness/stats that measure the same from outside.
const std::vector<Panel>& Panels() {
  static const std::vector<Panel> panels = {
      {"Output",
       "suffix: tokens/s",
       {{Rate("generation_tokens_total"), "output", "output_tokens_per_s"}}},
      {"Requests",
       "short",
       {{"sum(vllm:num_requests_running{})", "running"},
        {"sum(vllm:num_requests_waiting{})", "waiting"}}},
      {"Time to the first token",
       "s",
       {{Quantile("0.5", "time_to_first_token_seconds"), "median", "ttft_s"},
        {Quantile("0.95", "time_to_first_token_seconds"), "95 %", "ttft_p95_s"}}},
      {"Time between tokens",
       "s",
       {{Quantile("0.5", "inter_token_latency_seconds"), "median", "itl_s"},
        {Quantile("0.95", "inter_token_latency_seconds"), "95 %", "itl_p95_s"}}},
      {"Time per token of a request",
       "s",
       {{Quantile("0.5", "request_time_per_output_token_seconds"), "median", "tpot_s"}}},
      {"Time of a request",
       "s",
       {{Quantile("0.5", "e2e_request_latency_seconds"), "median", "e2el_s"},
        {Quantile("0.95", "e2e_request_latency_seconds"), "95 %", "e2el_p95_s"}}},
      {"Time in the queue",
       "s",
       {{Quantile("0.5", "request_queue_time_seconds"), "median", "queue_s"}}},
      {"Time of the prompt",
       "s",
       {{Quantile("0.5", "request_prefill_time_seconds"), "median", "prefill_s"}}},
      {"KV cache in use", "percentunit", {{"max(vllm:kv_cache_usage_perc{})", "in use"}}},
      {"Prompt tokens from the prefix cache",
       "percentunit",
       {{StrCat(Rate("prefix_cache_hits_total"), " / ", Rate("prefix_cache_queries_total")),
         "hits"}}},
      {"Preemptions", "suffix: sequences/s", {{Rate("num_preemptions_total"), "preempted"}}},
      {"Prompts", "suffix: tokens/s", {{Rate("prompt_tokens_total"), "prompts"}}},
  };
  return panels;
}

Json Datasource() { return Json::Object{{"type", "prometheus"}, {"uid", "${datasource}"}}; }

Json Target(size_t index, const std::string& expression, const std::string& legend) {
  return Json::Object{{"refId", StrCat("Q", index)},
                      {"datasource", Datasource()},
                      {"expr", expression},
                      {"legendFormat", legend},
                      {"range", true}};
}

std::string OfModel(std::string expression) {
  constexpr std::string_view kLabels = "{model_name=\"$model\"}";
  for (size_t at = 0; (at = expression.find("{}", at)) != std::string::npos; at += kLabels.size())
    expression.replace(at, 2, kLabels);
  return expression;
}

// Live series first, then a constant one for each expected value.
Json Targets(const Panel& panel, const std::vector<Expected>& expected) {
  Json::Array targets;
  for (const LiveSeries& live : panel.series)
    targets.push_back(Target(targets.size(), OfModel(live.expression), live.legend));
  for (const LiveSeries& live : panel.series)
    for (const Expected& value : expected)
      if (!value.metric.empty() && value.metric == live.metric)
        targets.push_back(
            Target(targets.size(), StrCat("vector(", Json(value.median).Dump(), ")"),
                   StrCat("expected ", live.legend, ", ", value.level, ": ", value.figure,
                          value.interval.empty() ? "" : StrCat(" (", value.interval, ")"))));
  return targets;
}

// Expected values are dashed.
Json FieldConfig(const Panel& panel) {
  const Json dashes = Json::Object{{"fill", "dash"}, {"dash", Json::Array{8, 8}}};
  const Json style = Json::Object{{"id", "custom.lineStyle"}, {"value", dashes}};
  const Json override =
      Json::Object{{"matcher", Json::Object{{"id", "byRegexp"}, {"options", "/^expected /"}}},
                   {"properties", Json::Array{style}}};
  return Json::Object{{"defaults", Json::Object{{"unit", panel.unit}, {"min", 0}}},
                      {"overrides", Json::Array{override}}};
}

Json PanelJson(const Panel& panel, int index, const std::vector<Expected>& expected) {
  constexpr int kWidth = 12, kHeight = 8;  // two in a row of 24
  return Json::Object{
      {"id", index + 1},
      {"type", "timeseries"},
      {"title", panel.title},
      {"datasource", Datasource()},
      {"gridPos",
       Json::Object{
           {"x", index % 2 * kWidth}, {"y", index / 2 * kHeight}, {"w", kWidth}, {"h", kHeight}}},
      {"fieldConfig", FieldConfig(panel)},
      {"targets", Targets(panel, expected)}};
}

Json Variables() {
  const Json model = Json::Object{{"name", "model"},
                                  {"type", "query"},
                                  {"label", "Model"},
                                  {"datasource", Datasource()},
                                  {"query", "label_values(vllm:num_requests_running, model_name)"},
                                  {"refresh", 2}};  // with the time range
  return Json::Array{Json::Object{{"name", "datasource"},
                                  {"type", "datasource"},
                                  {"label", "Data source"},
                                  {"query", "prometheus"}},
                     model};
}

}  // namespace

Result<std::string> DashboardText(const Profile& profile, const PodOptions&) {
  const std::vector<Expected> expected = ExpectedOf(profile);
  Json::Array panels;
  for (const Panel& panel : Panels())
    panels.push_back(PanelJson(panel, static_cast<int>(panels.size()), expected));
  const Json::Array tags = {"pinion", "vllm"};
  const Json dashboard = Json::Object{
      {"uid", ObjectName(profile, kMostOfUid)},
      {"title", StrCat("Pinion: ", profile.configuration.options.model, ", ", profile.objective)},
      {"description",
       "Dashed: measured by the sweep for this profile, at the load that the legend names, with "
       "its interval."},
      {"tags", tags},
      {"schemaVersion", 39},
      {"editable", true},
      {"refresh", "10s"},
      {"time", Json::Object{{"from", "now-1h"}, {"to", "now"}}},
      {"templating", Json::Object{{"list", Variables()}}},
      {"panels", std::move(panels)}};
  return dashboard.Dump(2) + "\n";
}

}  // namespace pinion::harness
