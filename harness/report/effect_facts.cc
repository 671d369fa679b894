// The effect of each setting by itself.

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "engine/base/strings.h"
#include "engine/run/settings.h"
#include "harness/report/facts.h"
#include "harness/report/words.h"

namespace pinion::harness {
namespace {

// Two configurations that differ in one setting alone.
struct Pair {
  const Candidate *with, *without;
};
// `from` is nullopt if the configurations without the change leave the setting at its default.
struct SettingChange {
  std::string engine, key, value;
  std::optional<std::string> from;
  bool operator==(const SettingChange&) const = default;
};

// A configuration that was measured, without the settings that are defaults.
struct MeasuredSettings {
  const Candidate* candidate;
  std::vector<Setting> settings;
};

// Of each engine, the settings that come to its defaults here: "reserved_cpus=0".
std::map<std::string, std::set<std::string>> DefaultsOf(const Results& results) {
  std::map<std::string, std::set<std::string>> defaults;
  for (const Candidate& candidate : results.candidates)
    for (const std::string& label : candidate.same_as)
      for (const std::string& part : Split(label, ' '))
        if (candidate.settings.empty()) defaults[candidate.engine].insert(part);
  return defaults;
}

std::vector<Setting> Without(std::vector<Setting> settings, const std::string& key) {
  std::erase_if(settings, [&](const Setting& one) { return one.key == key; });
  return settings;
}

std::vector<MeasuredSettings> MeasuredSettingsOf(const Results& results) {
  std::vector<MeasuredSettings> all;
  auto defaults = DefaultsOf(results);
  for (const Candidate& candidate : results.candidates) {
    if (!candidate.is_baseline && candidate.trials == 0) continue;
    MeasuredSettings& measured = all.emplace_back(MeasuredSettings{&candidate, candidate.settings});
    std::erase_if(measured.settings, [&](const Setting& one) {
      return defaults[candidate.engine].contains(Label({one}));
    });
  }
  return all;
}

std::optional<std::string> ValueOf(const std::vector<Setting>& settings, const std::string& key) {
  for (const Setting& one : settings)
    if (one.key == key) return one.value;
  return std::nullopt;
}

bool DifferInAlone(const std::string& key, const MeasuredSettings& one,
                   const MeasuredSettings& other) {
  return one.candidate->engine == other.candidate->engine &&
         ValueOf(one.settings, key) != ValueOf(other.settings, key) &&
         Without(one.settings, key) == Without(other.settings, key);
}

// The value with which the others are compared: the setting's default or, if none of these
// configurations differs from one without the setting in it alone, its first value. nullopt is the
// default.
std::optional<std::string> ReferenceOf(const std::vector<MeasuredSettings>& all,
                                       const std::string& engine, const std::string& key) {
  std::optional<std::string> first;
  for (const MeasuredSettings& with : all) {
    const std::optional<std::string> value = ValueOf(with.settings, key);
    if (with.candidate->engine != engine || !value) continue;
    if (!first) first = value;
    for (const MeasuredSettings& without : all)
      if (!ValueOf(without.settings, key) && DifferInAlone(key, with, without)) return std::nullopt;
  }
  return first;
}

// In the order of the candidates.
std::vector<std::pair<SettingChange, std::vector<Pair>>> ChangesOf(const Results& results) {
  const std::vector<MeasuredSettings> all = MeasuredSettingsOf(results);
  std::map<std::pair<std::string, std::string>, std::optional<std::string>> references;
  for (const MeasuredSettings& one : all)
    for (const Setting& setting : one.settings)
      if (const auto [found, is_new] = references.try_emplace({one.candidate->engine, setting.key});
          is_new)
        found->second = ReferenceOf(all, one.candidate->engine, setting.key);
  std::vector<std::pair<SettingChange, std::vector<Pair>>> changes;
  for (const MeasuredSettings& with : all)
    for (const Setting& setting : with.settings) {
      const std::string& engine = with.candidate->engine;
      const SettingChange change{engine, setting.key, setting.value,
                                 references.at({engine, setting.key})};
      for (const MeasuredSettings& without : all) {
        if (!DifferInAlone(setting.key, with, without) ||
            ValueOf(without.settings, setting.key) != change.from)
          continue;
        auto found = std::find_if(changes.begin(), changes.end(),
                                  [&](const auto& one) { return one.first == change; });
        if (found == changes.end()) found = changes.insert(changes.end(), {change, {}});
        found->second.push_back({with.candidate, without.candidate});
      }
    }
  return changes;
}

using RoundOf = std::pair<bool, int>;  // confirmation, round

// A candidate's log ratios to the baseline by round; none of the baseline itself, which is 0.
std::map<RoundOf, double> LogRatios(const Candidate& candidate, Objective objective) {
  std::map<RoundOf, double> logs;
  if (const Comparison* comparison = candidate.Find(objective))
    for (const Sample& one : comparison->ratios)
      if (one.value > 0) logs[{one.confirmation, one.round}] = std::log(one.value);
  return logs;
}

// The change's effect in every round that has a pair, as a ratio above 1 if it is better: the mean
// over the round's pairs in logs.
Estimate EffectOf(const std::vector<Pair>& pairs, Objective objective) {
  std::map<RoundOf, std::vector<double>> by_round;
  for (const Pair& pair : pairs) {
    const auto with = LogRatios(*pair.with, objective);
    const auto without = LogRatios(*pair.without, objective);
    for (const auto& [round, log_ratio] : pair.with->is_baseline ? without : with) {
      const auto of_with = with.find(round), of_without = without.find(round);
      const bool has_with = pair.with->is_baseline || of_with != with.end();
      const bool has_without = pair.without->is_baseline || of_without != without.end();
      if (!has_with || !has_without) continue;
      by_round[round].push_back((pair.with->is_baseline ? 0 : of_with->second) -
                                (pair.without->is_baseline ? 0 : of_without->second));
    }
  }
  std::vector<double> ratios;
  for (const auto& [round, logs] : by_round) {
    double sum = 0;
    for (const double one : logs) sum += one;
    ratios.push_back(std::exp(sum / static_cast<double>(logs.size())));
  }
  return EstimateMedian(ratios);
}

// Preemptions of a trial, over all of its loads.
double PreemptionsOf(const Candidate& candidate) {
  double sum = 0;
  for (const Series& series : candidate.series)
    if (series.metric == "preemptions") sum += MeanOf(series);
  return sum;
}

std::pair<double, double> MeanPreemptions(const std::vector<Pair>& pairs) {
  double without = 0, with = 0;
  for (const Pair& pair : pairs) {
    without += PreemptionsOf(*pair.without) / static_cast<double>(pairs.size());
    with += PreemptionsOf(*pair.with) / static_cast<double>(pairs.size());
  }
  return {without, with};
}

std::string ValueText(const SettingRow* row, const std::string& text) {
  // Of the default in words only the first of its cases.
  const std::string_view usual = row ? row->usual : "unset";
  if (text.empty()) return std::string(usual.substr(0, usual.find(';')));
  if (!row || row->kind != SettingKind::kGib) return text;
  const auto value = ParseSetting(*row, text, row->key);
  constexpr double kGib = 1024.0 * 1024 * 1024;
  return value ? FormatBytes(static_cast<uint64_t>(value->number() * kGib)) : text;
}

std::string ValueWithout(const Pair& pair, const std::string& key) {
  const SettingRow* row = FindSetting(key);
  if (!row) return "unset";
  return ValueText(row, SettingText(row->get(pair.without->configuration)));
}

std::string EffectText(const Estimate& effect) {
  if (effect.n == 0) return "-";
  return StrCat(FormatChange(effect), " (", FormatChangeInterval(effect), ")");
}

// Beyond noise: its interval leaves out 1, and it is larger than the floor.
bool StandsOut(const Estimate& effect, double floor) {
  const bool beyond = effect.interval && (effect.interval->low > 1 || effect.interval->high < 1);
  return beyond && std::abs(std::log(effect.median)) > std::log1p(floor);
}

}  // namespace

TextTable EffectFacts(const Results& results) {
  const auto changes = ChangesOf(results);
  const std::vector<Objective>& objectives = results.definition.objectives;
  TextTable table{"Effects of settings", "", {"setting", "from", "to"}, {}};
  bool preempted = false;
  for (const auto& [change, pairs] : changes) {
    const auto [before, after] = MeanPreemptions(pairs);
    preempted |= before > 0 || after > 0;
  }
  for (const Objective objective : objectives) table.head.push_back(Name(objective));
  if (preempted) table.head.push_back("preemptions");
  const bool is_race = results.definition.engines.size() > 1;
  for (const auto& [change, pairs] : changes) {
    const SettingRow* row = FindSetting(change.key);
    TextTable::Row one{{is_race ? StrCat(change.engine, ": ", change.key) : change.key,
                        ValueWithout(pairs.front(), change.key), ValueText(row, change.value)}};
    for (size_t i = 0; i < objectives.size(); ++i) {
      const Estimate effect = EffectOf(pairs, objectives[i]);
      one.stands_out |= StandsOut(effect, i < results.floors.size() ? results.floors[i] : 0);
      one.cells.push_back(EffectText(effect));
    }
    const auto [before, after] = MeanPreemptions(pairs);
    if (preempted) one.cells.push_back(StrCat(MeanText(before), " to ", MeanText(after)));
    table.rows.push_back(std::move(one));
  }
  if (table.rows.empty())
    table.note = "No two configurations that differ in one setting alone were measured.";
  else
    table.note =
        "Pairs of configurations that differ in this setting alone, compared within their rounds; "
        "+ is better. Marked: beyond noise in at least one objective.";
  return table;
}

}  // namespace pinion::harness
