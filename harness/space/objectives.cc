#include "harness/space/objectives.h"

#include <algorithm>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

// Requests behind a 95th percentile with its one-sided bound of 99 %: log(0.01) / log(0.95).
constexpr int kForP95 = 90;

int OnePerRequest(int) { return kForP95; }
int OnePerGap(int output_len) { return (kForP95 + output_len - 2) / (output_len - 1); }

std::string KnownNames() {
  std::vector<std::string> names;
  for (const ObjectiveRow& row : Objectives())
    names.push_back(row.at_load ? StrCat(row.name, "@LOAD") : row.name);
  return Join(names, ", ");
}

}  // namespace

const std::vector<ObjectiveRow>& Objectives() {
  using enum ObjectiveKind;
  static const std::vector<ObjectiveRow> rows = {
      {kThroughput, "throughput", "output_tokens_per_s", "output", "more tokens per second",
       "most output tokens per second of a batch"},
      {kLatency, "latency", nullptr, nullptr, "faster answers",
       "shortest time from request to last token, one client"},
      {kBalanced, "balanced", nullptr, nullptr, "better balance of throughput and latency",
       "best geometric mean of throughput and latency, each relative to the defaults"},
      {kGoodput, "goodput", "slo_load", "highest load", "more load within the SLO",
       "highest load at which enough requests meet the SLO"},
      {kCores, "cores", nullptr, nullptr, "better use of cores",
       "fewest cores that keep the throughput: halving them may cost at most cores_within of it"},
      {kEnergy, "energy", "joules_per_token", "energy", "more tokens per joule",
       "most output tokens per joule of all processor packages"},
      {kCost, "cost", "cost_per_mtoken", "cost per million tokens", "more tokens for the money",
       "lowest cost per output token at the prices given"},
      {kTtft, "ttft", "ttft_s", "first token", "faster first tokens",
       "shortest median time to the first token", true},
      {kTtftP95, "ttft_p95", "ttft_p95_s", "p95 of first tokens", "faster first tokens at p95",
       "shortest 95th percentile of the time to the first token", true, OnePerRequest},
      {kTpot, "tpot", "tpot_s", "per token", "less time per token",
       "shortest median time per token after the first", true},
      {kItl, "itl", "itl_s", "gap between tokens", "shorter gaps between tokens",
       "shortest median gap between tokens", true},
      {kItlP95, "itl_p95", "itl_p95_s", "p95 of gaps", "shorter gaps between tokens at p95",
       "shortest 95th percentile of the gaps between tokens", true, OnePerGap},
      {kE2el, "e2el", "e2el_s", "whole answer", "faster answers",
       "shortest median time from request to last token", true},
      {kE2elP95, "e2el_p95", "e2el_p95_s", "p95 of whole answers", "faster answers at p95",
       "shortest 95th percentile of the time from request to last token", true, OnePerRequest},
  };
  return rows;
}

const ObjectiveRow& RowOf(Objective objective) {
  return Objectives()[static_cast<size_t>(objective.kind)];
}

std::string Name(Objective objective) {
  const ObjectiveRow& row = RowOf(objective);
  return row.at_load ? StrCat(row.name, "@", LevelKey(objective.level)) : row.name;
}

std::string Goal(Objective objective) {
  const ObjectiveRow& row = RowOf(objective);
  if (!row.at_load) return row.goal;
  return StrCat(row.goal, ", ", LevelText(objective.level));
}

Result<Objective> ParseObjective(const std::string& name) {
  const auto unknown = [&] {
    return Fail(ErrorCode::kUsage,
                StrCat("unknown objective '", name, "'; known are ", KnownNames(),
                       "; LOAD is one of the workload's numbers of clients, such as 8, or of its "
                       "request rates, such as 2.5rps"));
  };
  const size_t at = name.find('@');
  const auto row =
      std::find_if(Objectives().begin(), Objectives().end(),
                   [&](const ObjectiveRow& one) { return name.substr(0, at) == one.name; });
  if (row == Objectives().end() || row->at_load != (at != std::string::npos)) return unknown();
  if (!row->at_load) return Objective{row->kind};
  const auto level = ParseLoadLevel(name.substr(at + 1));
  if (!level) return unknown();
  return Objective{row->kind, *level};
}

}  // namespace pinion::harness
