// The output of `pinion bench`: JSON for programs, a table for people.

#include <cmath>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/bench/bench.h"
#include "harness/stats/metrics.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

Json EstimateJson(const Estimate& estimate) {
  return Json::Object{{"median", estimate.median},
                      {"low", estimate.interval ? Json(estimate.interval->low) : Json()},
                      {"high", estimate.interval ? Json(estimate.interval->high) : Json()},
                      {"n", static_cast<int64_t>(estimate.n)}};
}

// Three or four significant digits; times below a minute in milliseconds.
std::string Number(double value, bool is_time) {
  if (is_time) value *= 1e3;
  return Printf(std::abs(value) < 10 ? "%.2f" : std::abs(value) < 1000 ? "%.1f" : "%.0f", value);
}

Json CostJson(const StepCost& cost, bool bound_by_bytes) {
  return Json::Object{{"bound_by", bound_by_bytes ? "bytes" : "flops"},
                      {"weight_bytes", cost.weight_bytes},
                      {"kv_bytes", cost.kv_bytes},
                      {"flops", cost.flops},
                      {"int8_ops", cost.int8_ops}};
}

Json LimitsJson(const BenchResult& result) {
  if (!result.limits) return {};
  const BenchLimits& limits = *result.limits;
  Json object = Json::MakeObject(), metrics = Json::MakeObject();
  object.Set("read_bytes_per_s", EstimateJson(limits.read_bytes_per_s));
  object.Set("flops_per_s", EstimateJson(limits.flops_per_s));
  object.Set("int8_ops_per_s", EstimateJson(limits.int8_ops_per_s));
  object.Set("prefill", CostJson(limits.prefill, limits.prefill_bound_by_bytes));
  object.Set("decode", CostJson(limits.decode, limits.decode_bound_by_bytes));
  for (const BenchRow& row : result.rows) {
    if (!row.limit) continue;
    Json item = Json::MakeObject();
    item.Set("limit", EstimateJson(*row.limit));
    item.Set("fraction", EstimateJson(*row.fraction_of_limit));
    metrics.Set(row.metric, std::move(item));
  }
  object.Set("metrics", std::move(metrics));
  return object;
}

// Whether the output is an embedding or scores.
bool Pools(const BenchResult& result) { return result.engine.task != ModelTask::kGenerate; }

struct Line {
  std::string name, unit, median, interval, limit, fraction;
};

Line LineOf(const BenchRow& row) {
  const MetricInfo* info = FindMetric(row.metric);
  const bool is_time = info && std::string(info->unit) == "s";
  Line line = {row.metric, info ? info->unit : "", Number(row.estimate.median, is_time), "-", "-",
               "-"};
  if (row.limit) {
    line.limit = Number(row.limit->median, is_time);
    line.fraction = Printf("%.0f %%", 100 * row.fraction_of_limit->median);
  }
  if (is_time) {
    line.name.resize(line.name.size() - 2);  // "ttft_s" -> "ttft", shown in ms
    line.unit = "ms";
  } else if (const size_t at = line.name.find("_tokens_per_s"); at != std::string::npos) {
    line.name.resize(at);
  }
  for (char& letter : line.name)
    if (letter == '_') letter = ' ';
  if (const auto& interval = row.estimate.interval)
    line.interval = StrCat(Number(interval->low, is_time), " to ", Number(interval->high, is_time));
  return line;
}

std::string Header(const BenchResult& result) {
  const EngineInfo& engine = result.engine;
  const BenchPlan& plan = result.plan;
  std::string text = StrCat(result.model, ": ", engine.dtype, ", ", engine.isa, ", ",
                            Counted(static_cast<size_t>(engine.threads), "thread"), ", ",
                            Counted(engine.plan.ranks.size(), "rank"), "\n");
  text += StrCat("gemm kernels by rows: ", engine.gemm, "\n");
  text += StrCat("ready in ", Printf("%.2f", engine.start_s), " s (weights ",
                 Printf("%.2f", engine.load_s), " s), peak memory ",
                 FormatBytes(result.peak_rss_bytes), "\n");
  text += StrCat(Name(plan.mode), ": ", plan.prompt_len, " tokens in, ");
  if (plan.shared_prefix > 0) text += StrCat("the first ", plan.shared_prefix, " common, ");
  text += Pools(result) ? "an embedding or scores out, " : StrCat(plan.output_len, " out, ");
  if (plan.mode == BenchMode::kLatency) text += StrCat("batch ", plan.batch);
  if (plan.mode == BenchMode::kThroughput) text += StrCat(plan.num_prompts, " prompts at once");
  if (plan.mode == BenchMode::kServing)
    text += StrCat(plan.num_prompts, " prompts from ", plan.batch, " clients in a closed loop");
  return text + StrCat(", ", Counted(static_cast<size_t>(plan.rounds), "round"), "\n\n");
}

// The least work of one phase of a round.
std::string StepCostText(const char* phase, const StepCost& cost, bool by_bytes) {
  return StrCat(
      phase, " is bound by ", by_bytes ? "memory" : "arithmetic", ": a round touches ",
      FormatBytes(cost.bytes()), " (KV ", FormatBytes(cost.kv_bytes), ") and takes ",
      Number(static_cast<double>(cost.flops) / 1e9, false), " GFLOP",
      cost.int8_ops == 0
          ? ""
          : StrCat(" and ", Number(static_cast<double>(cost.int8_ops) / 1e9, false), " int8 GOP"),
      "\n");
}

std::string LimitLines(const BenchResult& result) {
  if (!result.limits)
    return result.no_limits_because.empty() ? ""
                                            : StrCat("no limits: ", result.no_limits_because, "\n");
  const BenchLimits& limits = *result.limits;
  const auto giga = [](const Estimate& rate) { return Number(rate.median / 1e9, false); };
  return StrCat("\nlimit: ", giga(limits.read_bytes_per_s), " GB/s read and ",
                giga(limits.flops_per_s), " GFLOP/s in ", result.engine.dtype,
                limits.int8_ops_per_s.median == 0
                    ? ""
                    : StrCat(" and ", giga(limits.int8_ops_per_s), " GOP/s in int8"),
                " on ", result.engine.isa,
                ", measured between the rounds, memory also between the steps\n",
                StepCostText("prefill", limits.prefill, limits.prefill_bound_by_bytes),
                limits.decode.flops == 0  // of texts without answers
                    ? ""
                    : StepCostText("decode", limits.decode, limits.decode_bound_by_bytes));
}

Json ExchangeJson(const BenchResult& result) {
  if (!result.traffic || !result.engine.link) return {};
  const Traffic& traffic = *result.traffic;
  const LinkCost& link = *result.engine.link;
  return Json::Object{{"calls", traffic.calls},
                      {"delays", traffic.delays},
                      {"bytes", traffic.bytes},
                      {"seconds", traffic.seconds},
                      {"link_seconds", link.SecondsFor(traffic)},
                      {"link", ToJson(link)},
                      {"prefill_step", ToJson(result.prefill_step)},
                      {"decode_step", ToJson(result.decode_step)}};
}

// Exchange of a round with other processes, and the time that the link alone would take for it.
std::string ExchangeLine(const BenchResult& result) {
  if (!result.traffic || !result.engine.link) return "";
  const Traffic& traffic = *result.traffic;
  const LinkCost& link = *result.engine.link;
  const std::string rate = link.bytes_per_s > 0 ? Printf("%.3g GB/s", link.bytes_per_s / 1e9)
                                                : "bytes too fast to be measured";
  return StrCat("a round exchanges ", FormatBytes(traffic.bytes), " in ", traffic.calls,
                " calls with the other processes: ", Printf("%.3g s", traffic.seconds),
                ", waiting for them included; the link alone takes ",
                Printf("%.3g s", link.SecondsFor(traffic)), " (",
                Printf("%.3g us", link.call_s * 1e6), " a call, ", rate, ")\n");
}

// Time of a step that the link's cost predicts, beside the measured one.
std::string SpreadLine(const char* kind, const std::optional<SpreadStep>& step) {
  if (!step) return "";
  const auto ms = [](double seconds) { return StrCat(Number(seconds, true), " ms"); };
  const char* beyond =
      step->measured_s > step->predicted_s()
          ? "; the difference is time spent waiting for other processes or for a slower link"
          : "";
  return StrCat("a ", kind, " step is predicted to take ", ms(step->predicted_s()), " (",
                ms(step->compute_s), " of computing, as measured, and ", ms(step->link_s), " for ",
                Printf("%.0f", step->calls), " calls, ", Printf("%.0f", step->delays),
                " of them one after the other, and ",
                FormatBytes(static_cast<uint64_t>(step->bytes)), ") and took ",
                ms(step->measured_s), beyond, "\n");
}

std::string WaitLine(const std::vector<double>& shares) {
  if (shares.empty()) return "";
  std::string text = "threads waited for each other";
  for (size_t rank = 0; rank < shares.size(); ++rank)
    text += StrCat(rank == 0 ? ": " : ", ", "rank ", rank, " ", Percent(shares[rank]));
  return text + " of the steps' time\n";
}

}  // namespace

Json ToJson(const BenchResult& result) {
  Json object = Json::MakeObject();
  for (const BenchRow& row : result.rows) object.Set(row.metric, EstimateJson(row.estimate));
  object.Set("load_s", result.engine.load_s);
  object.Set("start_s", result.engine.start_s);
  object.Set("peak_rss_bytes", result.peak_rss_bytes);
  object.Set("isa", result.engine.isa);
  object.Set("gemm", result.engine.gemm);
  object.Set("dtype", result.engine.dtype);
  object.Set("threads", result.engine.threads);
  object.Set("mode", Name(result.plan.mode));
  object.Set("prompt_len", result.plan.prompt_len);
  object.Set("shared_prefix", result.plan.shared_prefix);
  object.Set("output_len", Pools(result) ? Json() : Json(result.plan.output_len));
  object.Set("batch", result.plan.batch);
  object.Set("num_prompts", result.plan.num_prompts);
  object.Set("rounds", result.plan.rounds);
  object.Set("limits", LimitsJson(result));
  if (!result.limits) object.Set("no_limits_because", result.no_limits_because);
  object.Set("wait_shares", Json(result.wait_shares));
  object.Set("exchange", ExchangeJson(result));
  object.Set("counters", ToJson(result.counters));
  object.Set("suspect", Json(result.suspect));
  object.Set("plan", ToJson(result.engine.plan));
  object.Set("config", result.config);
  return object;
}

std::string Render(const BenchResult& result) {
  std::string text = Header(result), formulas;
  const auto columns = [&](const std::string& name, const std::string& median,
                           const std::string& interval, const std::string& limit,
                           const std::string& fraction) {
    text += Left(name, 16) + Right(median, 12) + Right(interval, 22);
    if (result.limits) text += Right(limit, 12) + Right(fraction, 10);
  };
  columns("", "median", "95 % interval", "limit", "of limit");
  text += "\n";
  for (const BenchRow& row : result.rows) {
    const Line line = LineOf(row);
    columns(line.name, line.median, line.interval, line.limit, line.fraction);
    text += "  " + line.unit + "\n";
    if (const MetricInfo* info = FindMetric(row.metric))
      formulas += Left(line.name, 16) + info->formula + "\n";
  }
  if (result.plan.rounds < static_cast<int>(kMinSamples))
    text += StrCat("no interval below ", kMinSamples, " rounds\n");
  text += LimitLines(result) + WaitLine(result.wait_shares) + ExchangeLine(result) +
          SpreadLine("prefill", result.prefill_step) + SpreadLine("decode", result.decode_step);
  if (!result.counters.empty())
    text += "\nhardware counters per round:\n" + Render(result.counters);
  for (const std::string& reason : result.suspect) text += StrCat("disturbed: ", reason, "\n");
  return text + "\n" + formulas + "all figures are medians over the rounds\n";
}

}  // namespace pinion::harness
