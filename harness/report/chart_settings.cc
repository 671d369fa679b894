// Charts of single settings: binding x threads, scaling over threads, importance.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/report/charts.h"
#include "harness/report/words.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

const Estimate* BatchOutput(const Candidate& candidate) {
  const Series* series = candidate.Find("output_tokens_per_s", 0);
  return series ? &series->estimate : nullptr;
}

// The candidate's value of `key`: its own, or the baseline's.
std::string ValueOf(const Candidate& candidate, const std::string& key) {
  for (const Setting& setting : candidate.settings)
    if (setting.key == key) return setting.value;
  return "default";
}

struct Importance {
  std::string key, best, worst;
  double spread = 0;  // fraction between its best and its worst value
};

// The log ratios of the candidates that have a value, by value.
using ByValue = std::map<std::string, std::vector<double>>;

// Per value the median over the candidates that have it: the average effect of the setting.
Importance Spread(const std::string& name, ByValue by_value) {
  Importance importance{name, "", "", 0};
  double high = -INFINITY, low = INFINITY;
  for (auto& [value, logs] : by_value) {
    const double median = MedianInPlace(logs);
    if (median > high) high = median, importance.best = value;
    if (median < low) low = median, importance.worst = value;
  }
  if (by_value.size() > 1) importance.spread = std::exp(high - low) - 1;
  return importance;
}

// Each setting within each engine, and the engines by their defaults.
std::vector<Importance> ImportancesOf(const Results& results, Objective objective) {
  const bool is_race = results.definition.engines.size() > 1;
  std::vector<Importance> all;
  ByValue by_engine;
  for (const EngineChoice& engine : results.definition.engines) {
    std::set<std::string> keys;
    std::vector<const Candidate*> own;
    for (const Candidate& candidate : results.candidates) {
      const double ratio = candidate.Ratio(objective);
      if (candidate.engine != engine.name || ratio <= 0) continue;
      own.push_back(&candidate);
      for (const Setting& setting : candidate.settings) keys.insert(setting.key);
      if (candidate.settings.empty()) by_engine[engine.name].push_back(std::log(ratio));
    }
    for (const std::string& key : keys) {
      ByValue by_value;
      for (const Candidate* candidate : own)
        by_value[ValueOf(*candidate, key)].push_back(std::log(candidate->Ratio(objective)));
      all.push_back(Spread(is_race ? StrCat(engine.name, ": ", key) : key, std::move(by_value)));
    }
  }
  all.push_back(Spread("engine", std::move(by_engine)));
  std::erase_if(all, [](const Importance& one) { return one.best == one.worst; });
  std::stable_sort(all.begin(), all.end(),
                   [](const Importance& a, const Importance& b) { return a.spread > b.spread; });
  return all;
}

}  // namespace

Chart BindingChart(const Results& results) {
  Chart chart{"binding", "Binding × threads", "", Json::MakeArray(), ""};
  std::map<std::pair<std::string, int>, std::pair<const Candidate*, double>> best;
  for (const Candidate& candidate : results.candidates) {
    const double ratio = candidate.Ratio(Objective::kThroughput);
    if (!BatchOutput(candidate) || ratio <= 0) continue;
    auto& cell = best[{candidate.configuration.options.threads_bind, candidate.threads}];
    if (!cell.first || ratio > cell.second) cell = {&candidate, ratio};
  }
  const std::pair<const Candidate*, double>* top = nullptr;
  for (const auto& [key, cell] : best) {
    const auto& [candidate, ratio] = cell;
    if (!top || ratio > top->second) top = &cell;
    chart.values.Append(
        Json::Object{{"binding", key.first},
                     {"threads", key.second},
                     {"percent", (ratio - 1) * 100},
                     {"text", candidate->is_baseline ? "defaults" : FormatChange(ratio)},
                     {"configuration", SettingsText(*candidate)}});
  }
  if (best.size() < 2)
    return Absent(chart, "fewer than two bindings or numbers of threads were measured");
  chart.conclusion = StrCat("Batch output against the defaults, each cell's best configuration: ",
                            top->first->configuration.options.threads_bind, " with ",
                            Counted(static_cast<size_t>(top->first->threads), "thread"), " leads (",
                            FormatChange(top->second), ").");
  return chart;
}

Chart ScalingChart(const Results& results) {
  Chart chart{"scaling", "Scaling over threads", "", Json::MakeArray(), ""};
  std::map<int, const Candidate*> best;  // by threads
  for (const Candidate& candidate : results.candidates) {
    if (!BatchOutput(candidate) || candidate.threads < 1) continue;
    const Candidate*& of = best[candidate.threads];
    if (!of || BatchOutput(candidate)->median > BatchOutput(*of)->median) of = &candidate;
  }
  if (best.size() < 2)
    return Absent(chart, best.empty()
                             ? "no batch was measured"
                             : StrCat("every configuration ran on ",
                                      Counted(static_cast<size_t>(best.begin()->first), "thread")));
  const auto& [fewest, base] = *best.begin();
  const double per_thread = BatchOutput(*base)->median / fewest;
  for (const auto& [threads, candidate] : best) {
    const Estimate& output = *BatchOutput(*candidate);
    const double ideal = per_thread * threads;
    chart.values.Append(
        Json::Object{{"threads", threads},
                     {"tokens_per_s", output.median},
                     {"low", output.interval ? output.interval->low : output.median},
                     {"high", output.interval ? output.interval->high : output.median},
                     {"ideal", ideal},
                     {"text", StrCat(std::lround(100 * output.median / ideal), " %")},
                     {"configuration", SettingsText(*candidate)}});
  }
  const auto& [most, widest] = *best.rbegin();
  const double gain = BatchOutput(*widest)->median / BatchOutput(*base)->median;
  chart.conclusion = StrCat(most, Printf(" threads give %.2f times the output of ", gain), fewest,
                            ": an efficiency of ",
                            Printf("%.0f %%. Dashed: ideal scaling.", 100 * gain * fewest / most));
  return chart;
}

Chart ImportanceChart(const Results& results) {
  Chart chart{"importance", "Which settings matter", "", Json::MakeArray(), ""};
  const Objective objective = RankingObjective(results);
  const std::vector<Importance> all = ImportancesOf(results, objective);
  const double floor = results.FloorOf(objective);
  size_t noise = 0;
  for (const Importance& one : all) {
    noise += one.spread <= floor ? 1 : 0;
    chart.values.Append(Json::Object{{"setting", one.key},
                                     {"percent", one.spread * 100},
                                     {"floor", floor * 100},
                                     {"best", one.best},
                                     {"worst", one.worst}});
  }
  if (all.empty()) return Absent(chart, "no setting was measured with two values");
  chart.conclusion =
      StrCat(all[0].key, " matters most for ", Name(objective), ": ", all[0].best, " gives ",
             FormatChange(1 + all[0].spread), " against ", all[0].worst, ".");
  if (noise > 0)
    chart.conclusion +=
        StrCat(" ", Counted(noise, "setting"), noise == 1 ? " does" : " do", " less than noise.");
  if (floor > 0) chart.conclusion += " Tick: the noise floor.";
  return chart;
}

}  // namespace pinion::harness
