#include "harness/report/page.h"

#include <set>

#include "engine/base/strings.h"
#include "harness/report/answer.h"
#include "harness/report/charts.h"
#include "harness/report/facts.h"
#include "harness/report/launch_forms.h"
#include "harness/report/profile_files.h"
#include "harness/report/recommend.h"
#include "harness/report/words.h"

namespace pinion::harness {
namespace {

constexpr std::string_view kDate = "2026-01-01";

Html Notices(const Results& results) {
  Html notices;
  if (!results.finished)
    notices +=
        Tag("p", "notice",
            Prose(StrCat("Not finished: ", results.rounds_done, " of ", results.rounds_planned,
                         " rounds are done. These are the results so far; the same "
                         "`pinion sweep` with `--resume` continues.")));
  for (const std::string& warning : results.warnings) notices += Tag("p", "notice", Prose(warning));
  return notices;
}

// Text to paste, with a button that page/copy.js makes copy it.
Html Copyable(const std::string& text) {
  return Element("div", {{"class", "copyable"}},
                 Tag("pre", "command", text) +
                     Element("button", {{"type", "button"}, {"class", "copy"}}, Text("Copy")));
}

Html FormCell(const LaunchForm& form) {
  Html cell = Copyable(form.text);
  if (!form.note.empty()) cell += Tag("p", "faint small", form.note);
  return cell;
}

// Pinion's own command, and the other forms folded away.
Html FormsOf(const std::vector<LaunchForm>& forms) {
  Html rest;
  std::vector<std::string> titles;
  for (size_t i = 1; i < forms.size(); ++i) {
    rest += Tag("tr", RowHead(forms[i].title) + Tag("td", FormCell(forms[i])));
    titles.push_back(forms[i].title);
  }
  if (rest.empty()) return FormCell(forms[0]);
  return FormCell(forms[0]) +
         Tag("details", Tag("summary", "", "Other ways: " + Join(titles, ", ")) +
                            Tag("table", "commands", rest));
}

// The files beside the profile, a line each. The server of a live page has none of them to link to.
Html FilesOf(const std::vector<ProfileFileLine>& lines, bool live) {
  Html items;
  for (const ProfileFileLine& line : lines) {
    const bool is_link = !line.path.empty() && !live;
    const Html name =
        is_link ? Element("a", {{"href", line.path}}, Text(line.name)) : Tag("b", "", line.name);
    items +=
        Tag("li", name + Text(line.path.empty() ? ": none, because " : ": ") + Prose(line.text));
  }
  if (items.empty()) return items;
  return Tag("details", Tag("summary", "", "Files for Kubernetes, vLLM's stacks and Grafana") +
                            Tag("ul", items));
}

// Turns a height of {"step": N} into pixels for the rows that the data has in the field that
// usermeta names: Vega-Lite rejects a step height together with a width that follows the page.
void SetHeight(const Json& values, Json& spec) {
  const Json *meta = spec.Find("usermeta"), *height = spec.Find("height");
  const Json* field = meta ? meta->Find("rows") : nullptr;
  const Json* step = height ? height->Find("step") : nullptr;
  if (!field || !step) return;
  std::set<std::string> rows;
  for (const Json& row : values.array())
    if (const Json* value = row.Find(field->string())) rows.insert(value->Dump());
  spec.Set("height", step->number() * static_cast<double>(rows.size()));
}

// Charts without data, each with its reason.
Html AbsentCharts(const Results& results) {
  Html items;
  for (const Chart& chart : AllCharts(results))
    if (!chart.absent.empty())
      items += Tag("li", Tag("b", "", chart.title) + Prose(": " + chart.absent + "."));
  return items.empty() ? items : Tag("p", "", "Charts without data:") + Tag("ul", items);
}

}  // namespace

Html LaunchSection(const Results& results, const std::string& folder, bool live) {
  Html rows;
  for (const LaunchGroup& group : LaunchGroups(results, folder)) {
    const Verdict& verdict = *group.verdicts[0];
    rows += Tag("tr", RowHead(group.objectives()) +
                          Tag("td", FormsOf(LaunchForms(results, verdict, folder)) +
                                        FilesOf(ProfileFileLines(results, verdict, folder), live)));
  }
  if (rows.empty()) return Tag("p", "", "Nothing to launch yet.");
  return Tag("table", "commands", rows);
}

std::map<std::string, std::string> PageSections(const Results& results, const std::string& folder,
                                                bool live) {
  return {{"answer", Prose(Answer(results)).markup()},
          {"support", Prose(Support(results)).markup()},
          {"effort",
           Prose(EffortText(results) + ", " + results.started_at.substr(0, kDate.size())).markup()},
          {"notices", Notices(results).markup()},
          {"cards", VerdictCards(results).markup()},
          {"launch", LaunchSection(results, folder, live).markup()},
          {"absent", AbsentCharts(results).markup()},
          {"candidates", CandidateTable(results).markup()},
          {"failures", FailureTable(results).markup()},
          {"effects", ToHtml(EffectFacts(results), "h2").markup()},
          {"method", MethodSection(results).markup()},
          {"time", TimeSection(results).markup()},
          {"machine", MachineSection(results).markup()},
          {"reproduce", ReproduceSection(results).markup()}};
}

Json PageCharts(const Results& results, const PageParts& parts) {
  Json list = Json::MakeArray();
  for (Chart& chart : ChartsOf(results)) {
    const auto spec = parts.specs.find(chart.name);
    if (spec == parts.specs.end()) continue;
    Json sized = spec->second;
    SetHeight(chart.values, sized);
    // For screen readers.
    sized.Set("description", StrCat(chart.title, ". ", chart.conclusion));
    list.Append(Json::Object{{"name", chart.name},
                             {"title", chart.title},
                             {"conclusion", chart.conclusion},
                             {"spec", std::move(sized)},
                             {"values", std::move(chart.values)}});
  }
  return Json::Object{{"charts", std::move(list)}};
}

Result<std::string> ReportPage(const Results& results, const std::string& folder,
                               const PageParts& parts, bool live) {
  std::map<std::string, std::string> values = PageSections(results, folder, live);
  const bool charts = !parts.libraries.empty();
  values["title"] = Text("Pinion: " + results.model).markup();
  values["policy"] = PagePolicy(live);
  values["live"] = live ? "true" : "false";
  values["styles"] = parts.styles;
  values["model"] = Text(results.model).markup();
  values["machine_line"] = Text(MachineLine(results)).markup();
  values["no_charts"] =
      charts
          ? ""
          : Tag("p", "notice", "Charts are left out: this Pinion was built without npm.").markup();
  values["data"] = ScriptJson(charts ? PageCharts(results, parts) : Json::Object{});
  values["licence"] = Text(charts ? parts.licence : "this file contains none").markup();
  values["libraries"] = parts.libraries;
  values["behaviour"] = parts.behaviour;
  return FillTemplate(parts.page, values);
}

}  // namespace pinion::harness
