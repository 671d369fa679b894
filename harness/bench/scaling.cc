#include "harness/bench/scaling.h"

#include <algorithm>

#include "engine/base/strings.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

std::string CpuList(const std::vector<int>& cpus, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += StrCat(i == 0 ? "" : ",", cpus[i]);
  return text;
}

std::string ListsOf(const Plan& plan) {
  std::string text;
  for (const RankPlan& rank : plan.ranks)
    text += StrCat(text.empty() ? "" : "|", CpuList(rank.cpus, rank.cpus.size()));
  return text;
}

// The median of an estimate that `bench --json` printed; nothing if it is absent or null.
std::optional<double> MedianOf(const Json& parent, const char* key) {
  const Json* estimate = parent.Find(key);
  const Json* median = estimate && estimate->is_object() ? estimate->Find("median") : nullptr;
  if (!median || !median->is_number()) return std::nullopt;
  return median->number();
}

std::optional<double> OfLimit(const Json& bench, const char* metric) {
  const Json* limits = bench.Find("limits");
  const Json* metrics = limits && limits->is_object() ? limits->Find("metrics") : nullptr;
  const Json* row = metrics ? metrics->Find(metric) : nullptr;
  return row ? MedianOf(*row, "fraction") : std::nullopt;
}

Json OrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

std::string Rate(const std::optional<double>& value) {
  if (!value) return "-";
  return Printf(*value < 10 ? "%.2f" : *value < 1000 ? "%.1f" : "%.0f", *value);
}

std::string Ratio(const std::optional<double>& value, const std::optional<double>& first) {
  return value && first && *first > 0 ? Printf("%.2f", *value / *first) : "-";
}

std::string Share(const std::optional<double>& share) {
  return share ? Printf("%.0f %%", 100 * *share) : "-";
}

// The ranks' waits: one figure, or the least and the greatest of several.
std::string Waits(const std::vector<double>& shares) {
  if (shares.empty()) return "-";
  const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
  if (shares.size() == 1) return Printf("%.1f %%", 100 * *least);
  return Printf("%.1f", 100 * *least) + Printf(" to %.1f %%", 100 * *most);
}

constexpr const char* kExplanation =
    "ratios are to the first row; limits are those of each row's own threads; waiting: the share "
    "of\n"
    "the steps' time for which the threads of a rank wait for each other and for other ranks, of\n"
    "several ranks the least and the greatest; all figures are medians over the rounds\n";

}  // namespace

Result<std::vector<ScalingRun>> ScalingRuns(const Plan& plan, const std::vector<Plan>& splits) {
  const std::vector<int>& cpus = plan.ranks.front().cpus;
  if (cpus.empty())
    return Fail(
        ErrorCode::kUsage,
        "--scaling measures on stated CPUs, and --threads-bind nobind states none; leave it "
        "out, or give a CPU list");
  std::vector<ScalingRun> runs;
  for (size_t threads = 1;; threads = std::min(2 * threads, cpus.size())) {
    runs.push_back({1, static_cast<int>(threads), CpuList(cpus, threads)});
    if (threads == cpus.size()) break;
  }
  for (const Plan& split : splits)
    runs.push_back({static_cast<int>(split.ranks.size()), split.total_threads(), ListsOf(split)});
  return runs;
}

Result<ScalingRow> ReadScalingRow(const ScalingRun& run, const Json& bench) {
  ScalingRow row{.run = run};
  row.prefill_tokens_per_s = MedianOf(bench, "prefill_tokens_per_s");
  const auto decode = MedianOf(bench, "decode_tokens_per_s");  // none of texts without answers
  const Json* batch = bench.Find("batch");
  if (!row.prefill_tokens_per_s || !batch || !batch->is_number())
    return Fail(ErrorCode::kIo,
                StrCat("the bench of ", run.threads, " threads printed no rate of prefill"));
  if (decode) row.decode_steps_per_s = *decode / batch->number();
  row.prefill_of_limit = OfLimit(bench, "prefill_tokens_per_s");
  row.decode_of_limit = OfLimit(bench, "decode_tokens_per_s");
  if (const Json* shares = bench.Find("wait_shares"))
    for (const Json& share : shares->array()) row.wait_shares.push_back(share.number());
  return row;
}

Json ToJson(const std::vector<ScalingRow>& rows) {
  Json array = Json::MakeArray();
  for (const ScalingRow& row : rows) {
    Json object = Json::MakeObject();
    object.Set("ranks", row.run.ranks);
    object.Set("threads", row.run.threads);
    object.Set("threads_bind", row.run.threads_bind);
    if (!row.error.empty()) {
      object.Set("error", row.error);
    } else {
      object.Set("prefill_tokens_per_s", OrNull(row.prefill_tokens_per_s));
      object.Set("decode_steps_per_s", OrNull(row.decode_steps_per_s));
      object.Set("prefill_of_limit", OrNull(row.prefill_of_limit));
      object.Set("decode_of_limit", OrNull(row.decode_of_limit));
      object.Set("wait_shares", Json(row.wait_shares));
    }
    array.Append(std::move(object));
  }
  return array;
}

std::string Render(const std::vector<ScalingRow>& rows) {
  std::string text = Right("threads", 7) + Right("ranks", 7) + Right("prefill/s", 12) +
                     Right("ratio", 8) + Right("of limit", 10) + Right("steps/s", 12) +
                     Right("ratio", 8) + Right("of limit", 10) + Right("waiting", 16) + "  CPUs\n";
  for (const ScalingRow& row : rows) {
    text += Right(StrCat(row.run.threads), 7) + Right(StrCat(row.run.ranks), 7);
    if (row.error.empty()) {
      const ScalingRow& first = rows.front();
      text += Right(Rate(row.prefill_tokens_per_s), 12) +
              Right(Ratio(row.prefill_tokens_per_s, first.prefill_tokens_per_s), 8) +
              Right(Share(row.prefill_of_limit), 10) + Right(Rate(row.decode_steps_per_s), 12) +
              Right(Ratio(row.decode_steps_per_s, first.decode_steps_per_s), 8) +
              Right(Share(row.decode_of_limit), 10) + Right(Waits(row.wait_shares), 16) + "  " +
              row.run.threads_bind + "\n";
    } else {
      text += "  " + row.error + "\n";
    }
  }
  return text + "\n" + kExplanation;
}

}  // namespace pinion::harness
