// Two sweeps next to each other, for browsers and terminals.

#include "engine/base/strings.h"
#include "harness/report/html.h"
#include "harness/report/page_parts.h"
#include "harness/report/side_by_side.h"

namespace pinion::harness {
namespace {

std::string Origin(const std::string& folder, const Results& results) {
  return StrCat(folder, ": ", results.model, ", version ", results.version, ", commit ",
                results.commit.empty() ? "unknown" : results.commit, ", ", results.started_at,
                results.finished ? "" : ", not finished");
}

Result<std::string> SidePage(const Results& a, const Results& b, const RunComparison& comparison) {
  PINION_ASSIGN(const std::string place, FindPageParts());
  PINION_ASSIGN(const PageParts parts, ReadPageParts(place));
  Html sections, notes;
  for (const TextTable& table : SideTables(a, b, comparison)) sections += ToHtml(table, "h2");
  for (const auto* texts : {&comparison.obstacles, &comparison.notes})
    for (const std::string& text : *texts) notes += Tag("p", "notice", text);
  return FillTemplate(parts.comparison,
                      {{"title", Text(StrCat("Pinion: ", a.model, ", two sweeps")).markup()},
                       {"policy", PagePolicy(false)},
                       {"styles", parts.styles},
                       {"answer", Text(SideAnswer(a, b, comparison)).markup()},
                       {"a", Text(Origin(comparison.a, a)).markup()},
                       {"b", Text(Origin(comparison.b, b)).markup()},
                       {"notices", notes.markup()},
                       {"sections", sections.markup()},
                       {"behaviour", parts.behaviour}});
}

std::string SideMarkdown(const Results& a, const Results& b, const RunComparison& comparison) {
  std::string text = StrCat("# ", EscapeMarkdown(SideAnswer(a, b, comparison)),
                            "\n\n- A: ", EscapeMarkdown(Origin(comparison.a, a)),
                            "\n- B: ", EscapeMarkdown(Origin(comparison.b, b)), "\n");
  for (const auto* notes : {&comparison.obstacles, &comparison.notes})
    for (const std::string& note : *notes) text += "- " + EscapeMarkdown(note) + "\n";
  text += "\n";
  for (const TextTable& table : SideTables(a, b, comparison)) text += ToMarkdown(table);
  return text;
}

}  // namespace

Result<std::string> SideText(const Results& a, const Results& b, const RunComparison& comparison,
                             const std::string& format) {
  if (format == "json") return SideJson(a, b, comparison).Dump(2) + "\n";
  if (format == "md") return SideMarkdown(a, b, comparison);
  if (format == "html") return SidePage(a, b, comparison);
  return Fail(ErrorCode::kUsage,
              StrCat("two sweeps have no format '", format, "', want one of html, md, json"));
}

}  // namespace pinion::harness
