// Charts of serving: the SLO's boundary, latency distributions, the KV cache.

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "engine/run/settings.h"
#include "harness/report/charts.h"
#include "harness/report/distribution.h"
#include "harness/report/words.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

std::string Clients(int concurrency) { return Counted(static_cast<size_t>(concurrency), "client"); }

std::string LoadText(const SloSearchOptions& options, double load) {
  return StrCat(Printf("%.4g", load), options.whole ? " clients" : " requests/s");
}

// "passes 4.2 requests/s, fails 4.4 requests/s, a cliff"
std::string BoundaryText(const SloFinding& slo) {
  const SloBoundary& found = slo.boundary;
  const auto at = [&](size_t level) { return LoadText(slo.options, found.levels[level].load); };
  std::string text =
      found.pass ? "passes " + at(*found.pass) : std::string("passes at no load tried");
  text += found.fail ? ", fails " + at(*found.fail) : std::string(", fails at no load tried");
  if (found.is_cliff) text += ", a cliff";
  return found.is_settled ? text : text + ", not settled";
}

Json LevelRow(const Results& results, const Candidate& candidate, size_t index) {
  const SloBoundary& found = candidate.slo->boundary;
  const SloLevel& level = found.levels[index];
  return Json::Object{{"configuration", SettingsText(candidate)},
                      {"role", RoleOf(results, candidate)},
                      {"load", level.load},
                      {"percent", level.share * 100},
                      {"low", level.interval.low * 100},
                      {"high", level.interval.high * 100},
                      {"fitted", level.fitted * 100},
                      {"attain", candidate.slo->options.attain * 100},
                      {"requests", static_cast<uint64_t>(level.total)},
                      {"boundary", found.pass == index   ? "largest passing"
                                   : found.fail == index ? "smallest failing"
                                                         : "tried"}};
}

struct Cell {
  const Candidate* candidate = nullptr;
  double tokens_per_s = 0;
};

std::string KvSpaceOf(const Candidate& candidate) {
  const auto& bytes = candidate.configuration.options.kv_cache_bytes;
  return bytes ? SettingText(GibOf(*bytes)) : "auto";
}

// The line of a cell of the KV chart below its tokens/s, if it is known: a share's median, or the
// mean of a count.
struct KvFact {
  const char *metric, *key, *unit;
  bool is_count;
};
constexpr KvFact kKvFacts[] = {{"kv_used_share", "used", " % used", false},
                               {"prefix_hit_share", "prefix_hits", " % prefix hits", false},
                               {"preemptions", "preemptions", " preempted", true}};

// In percent, or a count. nullopt: it was not counted.
std::optional<double> ValueOf(const KvFact& fact, const Candidate& candidate, int concurrency) {
  const Series* series = candidate.Find(fact.metric, concurrency);
  if (!series) return std::nullopt;
  return fact.is_count ? MeanOf(*series) : 100 * series->estimate.median;
}

Json KvRow(const std::string& space, int concurrency, const Cell& cell, double best) {
  const Candidate& candidate = *cell.candidate;
  Json row = Json::Object{{"space", space},
                          {"clients", concurrency},
                          {"tokens_per_s", cell.tokens_per_s},
                          {"percent_of_best", 100 * cell.tokens_per_s / best},
                          {"configuration", SettingsText(candidate)}};
  std::string text = FormatFigure("tokens/s", cell.tokens_per_s);
  for (const KvFact& fact : kKvFacts) {
    const auto value = ValueOf(fact, candidate, concurrency);
    row.Set(fact.key, value ? Json(*value) : Json("unknown"));
    if (value)
      text += StrCat("\n", fact.is_count ? MeanText(*value) : Printf("%.0f", *value), fact.unit);
  }
  row.Set("text", std::move(text));
  return row;
}

// "no sequence was preempted. For some cells the cache's fill is unknown: ..."
std::string KvEnd(const std::map<std::pair<std::string, int>, Cell>& cells) {
  double preempted = 0;
  std::set<std::string> unknown;
  for (const auto& [key, cell] : cells)
    for (const KvFact& fact : kKvFacts) {
      const auto value = ValueOf(fact, *cell.candidate, key.second);
      if (!value) unknown.insert(fact.metric);
      if (fact.is_count) preempted += value.value_or(0);
    }
  std::string text = unknown.count("preemptions") ? "whether sequences were preempted is unknown."
                     : preempted > 0              ? "sequences were preempted."
                                                  : "no sequence was preempted.";
  if (unknown.count("kv_used_share"))
    text += " For some cells the cache's fill is unknown: servers do not report it.";
  return text;
}

double MsAt(const Distribution& one, double q) { return ValueAt(one, q) * 1e3; }

Json DistributionRow(const Candidate& candidate, const Distribution& one) {
  const double tail = TailQuantile(one);
  const auto percent = [](double q) { return std::lround(q * 100); };
  return Json::Object{{"what", StrCat(one.metric == "ttft_s" ? "first token, " : "token gap, ",
                                      LevelText(one.level))},
                      {"configuration", SettingsText(candidate)},
                      {"role", candidate.is_baseline ? "default" : "recommended"},
                      {"low", MsAt(one, 1 - tail)},
                      {"q1", MsAt(one, 0.25)},
                      {"ms", MsAt(one, 0.5)},
                      {"q3", MsAt(one, 0.75)},
                      {"high", MsAt(one, tail)},
                      {"n", static_cast<uint64_t>(one.n)},
                      {"range", StrCat(percent(1 - tail), " to ", percent(tail), " % of ", one.n)}};
}

}  // namespace

Chart SloChart(const Results& results) {
  Chart chart{"slo", "Load against the SLO", "", Json::MakeArray(), ""};
  std::vector<std::string> found;
  for (const Candidate& candidate : results.candidates) {
    if (!candidate.slo || candidate.slo->boundary.levels.empty()) continue;
    for (size_t i = 0; i < candidate.slo->boundary.levels.size(); ++i)
      chart.values.Append(LevelRow(results, candidate, i));
    if (RoleOf(results, candidate) != "other")
      found.push_back(StrCat(SettingsText(candidate), ": ", BoundaryText(*candidate.slo)));
  }
  if (chart.values.array().empty()) return Absent(chart, "the sweep had no SLO to search for");
  chart.conclusion = Join(found, "; ") + ".";
  return chart;
}

Chart KvChart(const Results& results) {
  Chart chart{"kv", "KV space against clients", "", Json::MakeArray(), ""};
  std::map<std::pair<std::string, int>, Cell> cells;
  std::map<int, double> best;  // by concurrency
  std::set<std::string> spaces;
  for (const Candidate& candidate : results.candidates)
    for (const int concurrency : results.definition.workload.concurrency) {
      const Series* output = candidate.Find("output_tokens_per_s", concurrency);
      const double tokens = output ? output->estimate.median : 0;
      if (tokens <= 0) continue;
      Cell& cell = cells[{KvSpaceOf(candidate), concurrency}];
      if (tokens > cell.tokens_per_s) cell = {&candidate, tokens};
      best[concurrency] = std::max(best[concurrency], tokens);
      spaces.insert(KvSpaceOf(candidate));
    }
  if (spaces.size() < 2)
    return Absent(chart, spaces.empty() ? "no client request has finished yet"
                                        : "every configuration has the same KV space");
  const std::pair<const std::pair<std::string, int>, Cell>* worst = nullptr;
  for (const auto& entry : cells) {
    const auto& [key, cell] = entry;
    chart.values.Append(KvRow(key.first, key.second, cell, best[key.second]));
    const auto share = [&](const auto& one) {
      return one.second.tokens_per_s / best[one.first.second];
    };
    if (!worst || share(entry) < share(*worst)) worst = &entry;
  }
  chart.conclusion = StrCat(
      "Each cell shows its best configuration. Furthest behind the best of its row: ",
      worst->first.first, worst->first.first == "auto" ? "" : " GiB", " with ",
      Clients(worst->first.second), " (",
      FormatChange(worst->second.tokens_per_s / best[worst->first.second]), "); ", KvEnd(cells));
  return chart;
}

Chart DistributionChart(const Results& results) {
  Chart chart{"distributions", "First token and token gaps", "", Json::MakeArray(), ""};
  const Candidate *baseline = results.Find(0), *winner = WinnerOf(results);
  for (const Candidate* candidate : {baseline, winner})
    if (candidate)
      for (const Distribution& one : candidate->distributions)
        if (!one.quantiles.empty()) chart.values.Append(DistributionRow(*candidate, one));
  if (chart.values.array().empty())
    return Absent(chart, "no trial recorded the times of its requests");
  const auto& loops = results.definition.workload.concurrency;
  const int most = loops.empty() ? 1 : *std::max_element(loops.begin(), loops.end());
  std::vector<std::string> parts;
  for (const auto& [candidate, name] : {std::pair(winner, "recommended"), {baseline, "defaults"}})
    if (const Distribution* one =
            candidate ? FindDistribution(*candidate, "ttft_s", most) : nullptr)
      parts.push_back(StrCat(name, " ", FormatFigure("s", ValueAt(*one, 0.5)), " (",
                             std::lround(TailQuantile(*one) * 100), " % within ",
                             FormatFigure("s", ValueAt(*one, TailQuantile(*one))), ")"));
  chart.conclusion = StrCat("First token with ", Clients(most), ": ", Join(parts, ", "),
                            ". Tick: median; bar: middle half; line: the range that the number of ",
                            "requests supports.");
  return chart;
}

}  // namespace pinion::harness
