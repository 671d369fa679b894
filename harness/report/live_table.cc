#include "harness/report/live_table.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/report/charts.h"
#include "harness/report/words.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

constexpr size_t kBar = 20;

// UTF-8 text, cut or padded to `columns` characters.
std::string Fit(const std::string& text, size_t columns) {
  std::string fitted;
  size_t used = 0;
  for (size_t i = 0; i < text.size() && used < columns; ++used) {
    const size_t begin = i++;
    while (i < text.size() && (text[i] & 0xC0) == 0x80) ++i;
    fitted += text.substr(begin, i - begin);
  }
  return fitted + std::string(columns - used, ' ');
}

std::string Bar(double share) {
  std::string bar;
  const auto full = static_cast<size_t>(std::lround(std::clamp(share, 0.0, 1.0) * kBar));
  for (size_t i = 0; i < kBar; ++i) bar += i < full ? "█" : "·";
  return bar;
}

std::string Row(size_t rank, const Candidate& candidate, Objective objective, double top,
                size_t width) {
  const double ratio = candidate.Ratio(objective);
  const Series* output = candidate.Find("output_tokens_per_s", 0);
  const Comparison* comparison = candidate.Find(objective);
  const std::string rate = output ? FormatFigure("tok/s", output->estimate.median) : "-";
  std::string change = "default";
  if (!candidate.is_baseline && comparison)
    change =
        StrCat(FormatChange(comparison->ratio),
               comparison->ratio.interval ? " [" + FormatChangeInterval(comparison->ratio) + "]"
                                          : StrCat(" (", comparison->ratio.n, ")"));
  const std::string row = StrCat(Right(StrCat(rank), 3), " ", Bar(top > 0 ? ratio / top : 0), " ",
                                 Fit(rate, 13), Fit(change, 30), " ", SettingsText(candidate));
  std::string cut = Fit(row, width);
  return cut.substr(0, cut.find_last_not_of(' ') + 1) + "\n";
}

}  // namespace

std::string LiveTable(const Results& results, size_t width, size_t height) {
  const Objective objective = RankingObjective(results);
  std::vector<const Candidate*> racing;
  for (const Candidate& candidate : results.candidates)
    if (candidate.status == CandidateStatus::kOk && candidate.Ratio(objective) > 0)
      racing.push_back(&candidate);
  if (racing.empty() || height < 3) return "";
  std::stable_sort(racing.begin(), racing.end(), [&](const Candidate* a, const Candidate* b) {
    return a->Ratio(objective) > b->Ratio(objective);
  });
  const size_t rows = std::min(racing.size(), height - 2);
  std::string text =
      Fit(StrCat("    ", Name(objective), " against the defaults, after ",
                 Counted(static_cast<size_t>(results.rounds_done), "round"),
                 rows < racing.size() ? StrCat("; the best ", rows, " of ", racing.size())
                                      : std::string()),
          width) +
      "\n";
  for (size_t i = 0; i < rows; ++i)
    text += Row(i + 1, *racing[i], objective, racing[0]->Ratio(objective), width);
  const Chart drift = DriftChart(results);
  if (!drift.conclusion.empty()) text += Fit("    " + drift.conclusion, width) + "\n";
  return text;
}

}  // namespace pinion::harness
