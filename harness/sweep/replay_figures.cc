#include "harness/sweep/replay_figures.h"

#include <algorithm>
#include <functional>

#include "harness/stats/estimate.h"

namespace pinion::harness {
namespace {

constexpr double kCloseEnough = 0.02;   // of the best
constexpr double kBudgetMargin = 0.05;  // a trial that is under way may end

struct FigureRule {
  const char* name;
  const char* title;
  // Empty: this replay has no such figure.
  std::function<std::optional<double>(const ReplayEnding&)> value;
};

std::optional<double> Share(bool is) { return is ? 1.0 : 0.0; }

std::vector<FigureRule> Shares(double best_log_truth) {
  using Ending = const ReplayEnding&;
  std::vector<FigureRule> shares = {
      {"false_crowns", "recommended, and not better",
       [](Ending one) { return Share(one.crowned && one.crowned_log_truth <= 0); }},
      {"worse_crowned", "recommended, and worse",
       [](Ending one) { return Share(one.crowned && one.crowned_log_truth < 0); }},
      {"small_crowned", "recommended within floor or epsilon",
       [](Ending one) { return Share(one.crowned_small); }},
      {"default_best", "called the defaults best",
       [](Ending one) { return Share(one.default_best); }},
      {"false_best", "that, and another is as good",
       [](Ending one) { return Share(one.false_best); }},
      {"coverage", "intervals that hold the truth",
       [](Ending one) { return one.covered ? Share(*one.covered) : std::nullopt; }},
      {"within_2_percent", "recommended within 2 % of the best",
       [](Ending one) { return Share(one.regret <= kCloseEnough); }},
      {"budget_kept", "kept the budget to 5 %",
       [](Ending one) { return Share(one.overrun <= kBudgetMargin); }},
      {"undecided", "without a verdict", [](Ending one) { return Share(one.undecided); }},
      {"unspent", "that, with a round's time left", [](Ending one) { return Share(one.unspent); }},
  };
  if (best_log_truth > 0)
    shares.push_back({"found", "recommended the best",
                      [](Ending one) { return Share(one.crowned && one.regret <= 0); }});
  return shares;
}

}  // namespace

const ReplayFigure* SeriesFigures::Find(const std::string& name) const {
  const auto found = std::find_if(figures.begin(), figures.end(),
                                  [&](const ReplayFigure& one) { return one.name == name; });
  return found == figures.end() ? nullptr : &*found;
}

SeriesFigures FiguresOf(const std::vector<ReplayEnding>& endings, size_t rows,
                        double best_log_truth) {
  SeriesFigures result;
  std::vector<double> trials;
  trials.reserve(endings.size());
  for (const ReplayEnding& one : endings) trials.push_back(one.trials);
  result.use.rows = rows;
  result.use.rows_per_sweep = std::max(1.0, Median(trials));
  const auto mean_of = [&](const FigureRule& rule) {
    std::vector<WindowValue> values;
    for (const ReplayEnding& one : endings)
      if (const auto value = rule.value(one)) values.push_back({one.offset, *value});
    return MeanByBlocks(values, rows, result.use.rows_per_sweep);
  };
  std::optional<double> worst;
  for (const FigureRule& rule : Shares(best_log_truth)) {
    const BlockMean mean = mean_of(rule);
    if (mean.n == 0) continue;
    result.figures.push_back({rule.name, rule.title, mean, 0, {}});
    if (const auto effect = DesignEffect(mean)) worst = std::max(worst.value_or(1), *effect);
  }
  for (ReplayFigure& share : result.figures) {
    const auto own = DesignEffect(share.mean);
    share.effective_replays = EffectiveSamples(share.mean, own ? own : worst);
    share.interval = ShareInterval(share.mean.mean, share.effective_replays);
  }
  const BlockMean cost = mean_of({"", "", [](const ReplayEnding& one) { return one.cost; }});
  result.use.stretches = cost.stretches;
  result.figures.push_back({"cost", "cost, mean, of 20 whole rounds", cost,
                            static_cast<double>(cost.n), MeanInterval(cost)});
  return result;
}

}  // namespace pinion::harness
