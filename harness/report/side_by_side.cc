#include "harness/report/side_by_side.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/json_lists.h"
#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/report/export.h"
#include "harness/report/facts.h"
#include "harness/report/words.h"

namespace pinion::harness {
namespace {

using Kind = MetricDifference::Kind;

// The objectives of both, in the order of `a`.
std::vector<std::string> Objectives(const Results& a, const Results& b) {
  std::vector<std::string> names;
  for (const Results* results : {&a, &b})
    for (const Verdict& verdict : results->verdicts)
      if (std::find(names.begin(), names.end(), verdict.objective) == names.end())
        names.push_back(verdict.objective);
  return names;
}

std::string RecommendedBy(const Results& results, const std::string& objective) {
  const Verdict* verdict = results.FindVerdict(objective);
  if (!verdict || !IsDecided(*verdict)) return "";
  const Candidate* candidate = results.Find(verdict->recommended);
  return candidate ? SettingsText(*candidate) : "";
}

std::string VerdictCell(const Results& results, const std::string& objective) {
  const Verdict* verdict = results.FindVerdict(objective);
  if (!verdict) return "not an objective";
  const Words words = InWords(results, *verdict);
  return words.gain.empty() ? words.headline : StrCat(words.headline, ": ", words.gain);
}

// A sweep without a decision contradicts nothing.
bool Agree(const Results& a, const Results& b, const std::string& objective) {
  const std::string by_a = RecommendedBy(a, objective), by_b = RecommendedBy(b, objective);
  return by_a == by_b || by_a.empty() || by_b.empty();
}

// {"x":{"y":1}} -> "x.y": "1". Leaves out the topology (long) and hygiene (it has its own table).
void Flatten(const Json& json, const std::string& path, std::map<std::string, std::string>& facts) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.object())
      if (key != "topology_xml" && key != "hygiene")
        Flatten(value, path.empty() ? key : StrCat(path, ".", key), facts);
    return;
  }
  facts[path] = json.is_null() ? "none" : json.is_string() ? json.string() : json.Dump();
}

std::map<std::string, std::string> FactsOf(const Results& results) {
  std::map<std::string, std::string> facts;
  Flatten(results.machine, "machine", facts);
  Flatten(results.budget, "budget", facts);
  Flatten(results.model_facts, "model", facts);
  Flatten(results.provenance, "", facts);
  Flatten(ToJson(results.definition), "sweep", facts);
  facts["model.name"] = results.model;
  facts["engine.version"] = results.version;
  facts["engine.commit"] = results.commit;
  return facts;
}

// The findings of `pinion doctor` when the sweep began: check -> "ok: performance on 2 CPUs".
std::map<std::string, std::string> HygieneOf(const Results& results) {
  std::map<std::string, std::string> found;
  for (const Json& check : ChecksOf(results))
    found[TextAt(check, "name")] = StrCat(TextAt(check, "state"), ": ", TextAt(check, "found"));
  return found;
}

struct Fact {
  std::string what, a, b;
};

std::vector<Fact> Differing(const std::map<std::string, std::string>& a,
                            const std::map<std::string, std::string>& b) {
  std::set<std::string> keys;
  for (const auto* facts : {&a, &b})
    for (const auto& [key, value] : *facts) keys.insert(key);
  const auto at = [](const std::map<std::string, std::string>& facts, const std::string& key) {
    const auto found = facts.find(key);
    return found == facts.end() ? std::string("-") : found->second;
  };
  std::vector<Fact> differing;
  for (const std::string& key : keys)
    if (at(a, key) != at(b, key)) differing.push_back({key, at(a, key), at(b, key)});
  return differing;
}

TextTable FactTable(const std::string& title, const std::string& subject,
                    const std::map<std::string, std::string>& a,
                    const std::map<std::string, std::string>& b) {
  TextTable table{title, "", {subject, "A", "B"}, {}};
  for (const Fact& fact : Differing(a, b)) table.rows.push_back({{fact.what, fact.a, fact.b}});
  const size_t same = std::max(a.size(), b.size()) - std::min(table.rows.size(), a.size());
  table.note =
      table.rows.empty() ? "The same in both." : StrCat(same, " others are the same in both.");
  return table;
}

TextTable VerdictTable(const Results& a, const Results& b) {
  TextTable table{"Recommendations", "", {"objective", "A", "B"}, {}};
  for (const std::string& objective : Objectives(a, b))
    table.rows.push_back({{objective, VerdictCell(a, objective), VerdictCell(b, objective)},
                          !Agree(a, b, objective)});
  return table;
}

std::string MetricName(const std::string& metric, LoadLevel level) {
  return level.any() ? StrCat(metric, ", ", LevelText(level)) : metric;
}

// One metric of one configuration, as each of the two sweeps measured it.
struct FigurePair {
  const Candidate *of_a, *of_b;
  const Series *a, *b;
};

std::vector<FigurePair> CommonFigures(const Results& a, const Results& b) {
  std::vector<FigurePair> figures;
  for (const Candidate& of_a : a.candidates)
    for (const Candidate& of_b : b.candidates) {
      if (SettingsText(of_a) != SettingsText(of_b)) continue;
      for (const Series& series : of_a.series) {
        const MetricInfo* metric = FindMetric(series.metric);
        const Series* other = of_b.Find(series.metric, series.level);
        if (metric && !metric->describes && other)
          figures.push_back({&of_a, &of_b, &series, other});
      }
    }
  return figures;
}

Json FigureJson(const FigurePair& one) {
  Json json = Json::Object{{"configuration", SettingsText(*one.of_a)},
                           {"metric", one.a->metric},
                           {"unit", FindMetric(one.a->metric)->unit},
                           {"a", EstimateJson(one.a->estimate)},
                           {"b", EstimateJson(one.b->estimate)}};
  SetLevel(one.a->level, json);
  return json;
}

std::string EstimateText(const Series& series) {
  const std::string unit = FindMetric(series.metric)->unit;
  std::string text = FormatFigure(unit, series.estimate.median);
  if (const auto& interval = series.estimate.interval)
    text += StrCat(" [", FormatRange(unit, interval->low, interval->high), "]");
  return text;
}

// Each sweep's own medians, for sweeps that cannot be compared.
TextTable UnjudgedTable(const Results& a, const Results& b) {
  TextTable table{"Figures, without a verdict",
                  "Each sweep's own medians and intervals.",
                  {"configuration", "metric", "A", "B"},
                  {}};
  for (const FigurePair& one : CommonFigures(a, b))
    table.rows.push_back({{SettingsText(*one.of_a), MetricName(one.a->metric, one.a->level),
                           EstimateText(*one.a), EstimateText(*one.b)}});
  return table;
}

TextTable JudgedTable(const RunComparison& comparison) {
  TextTable table{
      "Figures",
      StrCat("From the rounds that both have. A positive change means that B is better; it ",
             "counts if it exceeds the interval, the floor and ",
             FormatFigure("share", comparison.threshold), "."),
      {"configuration", "metric", "A", "B", "B is", "95 % interval", "floor", "rounds", "verdict"},
      {},
      4};
  for (const MetricDifference& one : comparison.differences) {
    const std::string unit = FindMetric(one.metric)->unit;
    table.rows.push_back(
        {{one.candidate == "default" ? "the defaults" : one.candidate,
          MetricName(one.metric, one.level), FormatFigure(unit, one.a), FormatFigure(unit, one.b),
          FormatChange(one.ratio), FormatChangeInterval(one.ratio),
          FormatFigure("share", one.floor), StrCat(one.ratio.n), Name(one.kind)},
         one.kind == Kind::kBetter || one.kind == Kind::kWorse,
         &one.ratio,
         one.floor});
  }
  std::stable_partition(table.rows.begin(), table.rows.end(),
                        [](const TextTable::Row& row) { return row.stands_out; });
  return table;
}

TextTable OnlyInOne(const Results& a, const Results& b) {
  TextTable table{"Configurations in only one sweep", "", {"configuration", "in", "status"}, {}};
  const auto add = [&](const Results& from, const Results& other, const char* name) {
    std::set<std::string> known;
    for (const Candidate& candidate : other.candidates) known.insert(SettingsText(candidate));
    for (const Candidate& candidate : from.candidates)
      if (!known.count(SettingsText(candidate)))
        table.rows.push_back({{SettingsText(candidate), name, Name(candidate.status)}});
  };
  add(a, b, "A");
  add(b, a, "B");
  if (table.rows.empty()) table.note = "None: both have the same configurations.";
  return table;
}

Json RunJson(const std::string& folder, const Results& results) {
  return Json::Object{{"folder", folder},
                      {"model", results.model},
                      {"version", results.version},
                      {"commit", results.commit},
                      {"started_at", results.started_at},
                      {"finished", results.finished}};
}

Json RecommendedJson(const Results& results, const std::string& objective) {
  const Verdict* verdict = results.FindVerdict(objective);
  if (!verdict) return nullptr;
  return Json::Object{{"configuration", RecommendedBy(results, objective)},
                      {"outcome", Name(verdict->outcome)},
                      {"ratio_to_default", EstimateJson(verdict->ratio)}};
}

}  // namespace

std::vector<TextTable> SideTables(const Results& a, const Results& b,
                                  const RunComparison& comparison) {
  return {VerdictTable(a, b),
          comparison.differences.empty() ? UnjudgedTable(a, b) : JudgedTable(comparison),
          OnlyInOne(a, b),
          FactTable("Environment: differences", "property", FactsOf(a), FactsOf(b)),
          FactTable("Hygiene: differences", "check", HygieneOf(a), HygieneOf(b))};
}

std::string SideAnswer(const Results& a, const Results& b, const RunComparison& comparison) {
  std::string text;
  if (!comparison.obstacles.empty()) {
    const size_t reasons = comparison.obstacles.size();
    text = StrCat(
        "No verdict between the two",
        reasons == 1 ? ": " + comparison.obstacles.front() : StrCat(", for ", reasons, " reasons"),
        ".");
  } else {
    const size_t better = comparison.Count(Kind::kBetter), worse = comparison.Count(Kind::kWorse);
    const std::string all = Counted(comparison.differences.size(), "figure");
    text = better + worse == 0
               ? StrCat("Nothing changed beyond noise in ", all, ".")
               : StrCat("Of ", all, " ", better, better == 1 ? " is" : " are", " better and ",
                        worse, worse == 1 ? " is" : " are", " worse in B.");
  }
  std::vector<std::string> changed;
  for (const std::string& objective : Objectives(a, b))
    if (!Agree(a, b, objective)) changed.push_back(objective);
  return changed.empty() ? text + " Their recommendations do not contradict each other."
                         : StrCat(text, " They recommend different configurations for ",
                                  Join(changed, ", "), ".");
}

Json SideJson(const Results& a, const Results& b, const RunComparison& comparison) {
  Json recommended = Json::MakeArray(), figures = Json::MakeArray(),
       environment = Json::MakeArray();
  for (const std::string& objective : Objectives(a, b))
    recommended.Append(Json::Object{{"objective", objective},
                                    {"a", RecommendedJson(a, objective)},
                                    {"b", RecommendedJson(b, objective)},
                                    {"same", Agree(a, b, objective)}});
  for (const FigurePair& one : CommonFigures(a, b)) figures.Append(FigureJson(one));
  for (const Fact& fact : Differing(FactsOf(a), FactsOf(b)))
    environment.Append(Json::Object{{"what", fact.what}, {"a", fact.a}, {"b", fact.b}});
  return Json::Object{
      {"answer", SideAnswer(a, b, comparison)}, {"a", RunJson(comparison.a, a)},
      {"b", RunJson(comparison.b, b)},          {"recommended", std::move(recommended)},
      {"figures", std::move(figures)},          {"environment", std::move(environment)},
      {"comparison", ToJson(comparison)}};
}

}  // namespace pinion::harness
