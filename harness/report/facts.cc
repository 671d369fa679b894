#include "harness/report/facts.h"

#include <algorithm>

#include "engine/base/json_lists.h"
#include "engine/base/strings.h"
#include "harness/report/words.h"

namespace pinion::harness {
namespace {

std::string TextOf(const std::string& key, const Json& value) {
  if (value.is_null()) return "none";
  if (value.is_string()) return value.string();
  if (value.is_array()) {
    std::vector<std::string> parts;
    for (const Json& one : value.array())
      parts.push_back(one.is_string() ? one.string() : one.Dump());
    return parts.empty() ? "none" : Join(parts, ", ");
  }
  const bool bytes = key.ends_with("bytes") && value.is_int() && value.integer() > 0;
  return bytes ? FormatBytes(static_cast<uint64_t>(value.integer())) : value.Dump();
}

// {"a":1,"b":{"c":2}} as "a" and "b.c"; lists of objects stay JSON.
void AddFacts(const Json& json, const std::string& path, TextTable& table) {
  if (!json.is_object()) {
    if (!path.empty()) table.rows.push_back({{path, TextOf(path, json)}});
    return;
  }
  for (const auto& [key, value] : json.object())
    AddFacts(value, path.empty() ? key : StrCat(path, ".", key), table);
}

// One node of a gathered sweep.
std::string NodeText(const Json& node) {
  const auto number = [&](const char* key) { return Optional<int>(node, key, 0).value_or(0); };
  return StrCat(TextAt(node, "folder"), ", begun ", TextAt(node, "started_at"), ": ",
                number("trials"), " trials, rounds ", number("race_rounds_before") + 1, " to ",
                number("race_rounds_before") + number("race_rounds"), " of the race, ",
                number("confirmation_rounds"), " to confirm");
}

}  // namespace

const Json::Array& ChecksOf(const Results& results) {
  const Json* hygiene = results.provenance.Find("hygiene");
  return ItemsOf(hygiene ? hygiene->Find("checks") : nullptr);
}

bool IsCounter(const Json& check) { return TextAt(check, "name").starts_with(kCounterCheck); }

TextTable MetricFacts(const Results&) {
  TextTable table{"Metrics", "", {"metric", "unit", "formula"}, {}};
  for (const MetricInfo& metric : Metrics())
    table.rows.push_back({{metric.name, metric.unit, metric.formula}});
  return table;
}

TextTable TimeFacts(const Results& results) {
  constexpr size_t kShown = 12;
  std::vector<const Candidate*> spent;
  for (const Candidate& candidate : results.candidates)
    if (candidate.seconds > 0) spent.push_back(&candidate);
  TextTable table{"Where the time went", "", {"configuration", "time", "trials"}, {}};
  if (spent.empty()) table.note = "No trial has ended yet.";
  std::stable_sort(spent.begin(), spent.end(),
                   [](const Candidate* a, const Candidate* b) { return a->seconds > b->seconds; });
  double rest_s = 0;
  int rest_trials = 0;
  for (size_t i = 0; i < spent.size(); ++i) {
    if (i < kShown) {
      table.rows.push_back(
          {{SettingsText(*spent[i]), FormatSeconds(spent[i]->seconds), StrCat(spent[i]->trials)}});
      continue;
    }
    rest_s += spent[i]->seconds;
    rest_trials += spent[i]->trials;
  }
  if (rest_s > 0)
    table.rows.push_back({{StrCat("the other ", spent.size() - kShown), FormatSeconds(rest_s),
                           StrCat(rest_trials)}});
  return table;
}

TextTable MachineFacts(const Results& results) {
  TextTable table{"Machine, budget, model", "", {}, {}};
  const std::pair<const char*, const Json*> parts[] = {
      {"machine", &results.machine}, {"budget", &results.budget}, {"model", &results.model_facts}};
  for (const auto& [name, part] : parts) AddFacts(*part, name, table);
  if (!results.nodes.is_array()) return table;
  for (const Json& node : results.nodes.array()) table.rows.push_back({{"node", NodeText(node)}});
  table.note =
      "Comparisons pool the rounds of these nodes, each with itself: they hold for these, not for "
      "every machine of the kind. Absolute figures are over all of them.";
  return table;
}

TextTable HygieneFacts(const Results& results) {
  TextTable table{"Hygiene when the sweep began", "", {"check", "state", "found", "fix"}, {}};
  const Json::Array& checks = ChecksOf(results);
  if (checks.empty()) {
    table.note = "Not recorded: an older Pinion made this sweep and did not examine the machine.";
    return table;
  }
  for (const Json& check : checks) {
    if (IsCounter(check)) continue;  // these have a table of their own
    const std::string state = TextAt(check, "state"), found = TextAt(check, "found"),
                      reason = TextAt(check, "reason");
    const bool warns = state == "warn";
    table.rows.push_back(
        {{TextAt(check, "name"), state, found.empty() ? reason : StrCat(found, ": ", reason),
          warns ? TextAt(check, "fix") : ""},
         warns});
  }
  // Warnings first.
  std::stable_partition(table.rows.begin(), table.rows.end(),
                        [](const TextTable::Row& row) { return row.stands_out; });
  return table;
}

TextTable EnvironmentFacts(const Results& results) {
  TextTable table{"Environment", "", {}, {}};
  if (results.provenance.is_object())
    for (const auto& [key, value] : results.provenance.object())
      if (key != "topology_xml" && key != "hygiene") AddFacts(value, key, table);
  if (table.rows.empty()) table.note = "Not recorded.";
  return table;
}

}  // namespace pinion::harness
