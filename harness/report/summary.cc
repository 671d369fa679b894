#include "harness/report/summary.h"

#include "engine/base/strings.h"
#include "harness/report/answer.h"
#include "harness/report/recommend.h"
#include "harness/report/words.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

std::string VerdictLines(const Results& results, const Verdict& verdict) {
  const Words words = InWords(results, verdict);
  std::string text = StrCat(Left(verdict.objective, 12), words.headline, "\n");
  for (const std::string* line :
       {&words.gain, &words.confidence, &words.floor, &words.runner_up, &words.tied})
    if (!line->empty()) text += StrCat(std::string(12, ' '), *line, "\n");
  return text;
}

}  // namespace

std::string SummaryText(const Results& results, const std::string& folder) {
  std::string text = StrCat(results.model, " on ", MachineLine(results), "\n", EffortText(results),
                            "\n\n", Answer(results), "\n\n");
  for (const Verdict& verdict : results.verdicts) text += VerdictLines(results, verdict);
  for (const Candidate& candidate : results.candidates)
    if (GaveOut(candidate.status) || candidate.status == CandidateStatus::kPruned)
      text +=
          StrCat(Left(Name(candidate.status), 12), candidate.label, ": ", candidate.reason, "\n");
  text += StrCat("\nreport      ", folder, "/report.html\n");
  for (const LaunchGroup& group : LaunchGroups(results, folder))
    text += StrCat(Left("launch", 12), group.commands.pinion, group.commands.other, "  # ",
                   group.objectives(), "\n");
  return text;
}

}  // namespace pinion::harness
