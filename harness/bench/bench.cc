#include "harness/bench/bench.h"

#include <unistd.h>

#include <algorithm>

#include "engine/base/process.h"
#include "engine/base/strings.h"
#include "engine/base/trace.h"
#include "harness/bench/limit_taker.h"
#include "harness/bench/load.h"
#include "harness/bench/prompts.h"
#include "harness/counters/conditions.h"

namespace pinion::harness {
namespace {

// Whether the model makes an embedding or scores of a text, and no text of its own.
bool Pools(const Engine& engine) { return engine.info().task != ModelTask::kGenerate; }

EngineLoad PlanOf(const Engine& engine, const BenchPlan& plan, int round) {
  EngineLoad load;
  load.clock = plan.clock;
  load.requests = plan.mode == BenchMode::kLatency ? plan.batch : plan.num_prompts;
  load.clients = plan.mode == BenchMode::kThroughput ? plan.num_prompts : plan.batch;
  const int vocabulary = engine.model().spec.vocabulary;
  load.output_len = plan.output_len;
  load.pools = Pools(engine);
  load.prompt = [&plan, round, vocabulary](int index) {
    const auto draw = [&](uint64_t stream) {
      return RandomPrompt(plan.seed, static_cast<uint64_t>(round), stream, plan.prompt_len,
                          vocabulary);
    };
    std::vector<int32_t> prompt = draw(static_cast<uint64_t>(index));
    if (plan.shared_prefix > 0) {
      const std::vector<int32_t> first = draw(0);
      std::copy_n(first.begin(), plan.shared_prefix, prompt.begin());
    }
    return prompt;
  };
  return load;
}

// Each counter source's values as medians over the rounds; a source that failed in any round keeps
// its reason.
std::vector<CounterReading> MediansOf(const std::vector<std::vector<CounterReading>>& rounds) {
  std::vector<CounterReading> medians = rounds.front();
  for (size_t source = 0; source < medians.size(); ++source) {
    for (const auto& round : rounds)
      if (!round[source].unavailable.empty()) medians[source] = round[source];
    for (size_t i = 0; i < medians[source].values.size(); ++i) {
      std::vector<double> values;
      for (const auto& round : rounds)
        if (i < round[source].values.size()) values.push_back(round[source].values[i].value);
      medians[source].values[i].value = Median(values);
    }
  }
  return medians;
}

// The share of the steps' time between two moments for which each rank's threads waited.
std::vector<double> WaitShares(const EngineStats& before, const EngineStats& after) {
  const double seconds =
      (after.prefill - before.prefill).seconds + (after.decode - before.decode).seconds;
  std::vector<double> shares;
  for (size_t rank = 0; rank < after.waited_s.size() && seconds > 0; ++rank)
    shares.push_back((after.waited_s[rank] - before.waited_s[rank]) / seconds);
  return shares;
}

std::vector<double> MediansByRank(const std::vector<std::vector<double>>& rounds) {
  std::vector<double> medians;
  for (size_t rank = 0; rank < rounds.front().size(); ++rank) {
    std::vector<double> values;
    for (const std::vector<double>& round : rounds) values.push_back(round[rank]);
    medians.push_back(Median(values));
  }
  return medians;
}

std::optional<Traffic> MedianTraffic(const std::vector<Traffic>& rounds) {
  std::vector<double> calls, delays, bytes, seconds;
  for (const Traffic& round : rounds) {
    calls.push_back(static_cast<double>(round.calls));
    delays.push_back(static_cast<double>(round.delays));
    bytes.push_back(static_cast<double>(round.bytes));
    seconds.push_back(round.seconds);
  }
  if (Median(calls) == 0) return std::nullopt;
  return Traffic{.calls = static_cast<uint64_t>(Median(calls)),
                 .delays = static_cast<uint64_t>(Median(delays)),
                 .bytes = static_cast<uint64_t>(Median(bytes)),
                 .seconds = Median(seconds)};
}

// The peak without the probe's own memory, which is resident from its first measurement on.
uint64_t PeakOfEngine(uint64_t peak_before_probe_bytes, const CeilingProbe* probe) {
  if (!probe) return PeakRssBytes(getpid());
  return std::max(peak_before_probe_bytes, PeakRssBytes(getpid()) - probe->memory_bytes());
}

// The metrics that need no SLO, from every request of a round.
void TakeServing(const LoadResult& load, const ServingSummary& summary, RoundValues& values) {
  const auto add_median = [&](const char* metric, const std::vector<double>& of) {
    if (!of.empty()) values[metric].push_back(Median(of));
  };
  const auto add_quantile = [&](const char* metric, const std::vector<double>& of, double q) {
    if (const auto value = SupportedQuantile(of, q)) values[metric].push_back(*value);
  };
  std::vector<double> queue_s, prefill_s;
  for (const ClientTrace& client : load.clients) {
    queue_s.push_back(client.queue_s);
    prefill_s.push_back(client.prefill_s);
  }
  add_median("ttft_s", summary.ttft_s);
  add_median("tpot_s", summary.tpot_s);
  add_median("itl_s", summary.itl_s);
  add_median("e2el_s", summary.e2el_s);
  add_median("queue_s", queue_s);
  add_median("prefill_s", prefill_s);
  add_quantile("itl_p90_s", summary.itl_s, 0.90);
  add_quantile("itl_p99_s", summary.itl_s, 0.99);
  add_quantile("ttft_p90_s", summary.ttft_s, 0.90);
  values["output_tokens_per_s"].push_back(summary.output_tokens_per_s);
}

void Take(const BenchPlan& plan, const LoadResult& load, RoundValues& values) {
  const auto add_rate = [&](const char* metric, const StepWork& work) {
    if (work.seconds > 0) values[metric].push_back(static_cast<double>(work.tokens) / work.seconds);
  };
  add_rate("prefill_tokens_per_s", load.prefill);
  add_rate("decode_tokens_per_s", load.decode);
  const ServingSummary summary = Summarise(load.Traces(), plan.slo);
  TakeServing(load, summary, values);
  if (plan.slo.any()) values["goodput"].push_back(summary.goodput);
}

// The metrics that each mode shows, in this order. A text without an answer is all prefill.
std::vector<std::string> LinesOf(BenchMode mode, bool pools) {
  if (pools) return {"prefill_tokens_per_s", "e2el_s"};
  std::vector<std::string> lines = {"prefill_tokens_per_s", "decode_tokens_per_s"};
  const auto add = [&](std::initializer_list<const char*> more) {
    lines.insert(lines.end(), more.begin(), more.end());
  };
  if (mode == BenchMode::kLatency) add({"ttft_s", "tpot_s", "e2el_s"});
  if (mode == BenchMode::kThroughput) add({"output_tokens_per_s", "e2el_s"});
  if (mode == BenchMode::kServing)
    add({"output_tokens_per_s", "goodput", "ttft_s", "ttft_p90_s", "tpot_s", "itl_s", "itl_p90_s",
         "itl_p99_s", "e2el_s", "queue_s", "prefill_s"});
  return lines;
}

Status CheckAtLeast(const char* flag, int value, int low) {
  if (value >= low) return {};
  return Fail(ErrorCode::kUsage, StrCat(flag, " is ", value, ", want ", low, " or more"));
}

// Sums up the rounds so far.
void Fill(const RoundValues& values, const LimitTaker& limits, bool pools, BenchResult& result) {
  result.rows.clear();
  for (const std::string& metric : LinesOf(result.plan.mode, pools))
    if (const auto found = values.find(metric); found != values.end())
      result.rows.push_back({metric, EstimateMedian(found->second), {}, {}});
  limits.Fill(result);
}

}  // namespace

const char* Name(BenchMode mode) {
  constexpr const char* kNames[] = {"latency", "throughput", "serving"};
  return kNames[static_cast<size_t>(mode)];
}

Status Validate(const BenchPlan& plan) {
  PINION_TRY(CheckAtLeast("--prompt-len", plan.prompt_len, 1));
  if (plan.shared_prefix < 0 || plan.shared_prefix > plan.prompt_len)
    return Fail(ErrorCode::kUsage, StrCat("--shared-prefix is ", plan.shared_prefix,
                                          ", want 0 to --prompt-len, ", plan.prompt_len));
  // With one token there is no decode step to measure.
  PINION_TRY(CheckAtLeast("--output-len", plan.output_len, 2));
  PINION_TRY(CheckAtLeast("--batch", plan.batch, 1));
  PINION_TRY(CheckAtLeast("--num-prompts", plan.num_prompts, 1));
  return CheckAtLeast("--rounds", plan.rounds, 1);
}

Status FitPrompt(const EngineInfo& engine, BenchPlan& plan) {
  const auto length = static_cast<int64_t>(engine.max_model_len);
  if (engine.task != ModelTask::kGenerate) {
    plan.prompt_len = static_cast<int>(std::min<int64_t>(plan.prompt_len, length));
    return {};
  }
  if (plan.output_len >= length)
    return Fail(ErrorCode::kUsage,
                StrCat("--output-len is ", plan.output_len, ", want at most ", length - 1,
                       ": prompt and answer share the ", length, " tokens of the model's length"));
  plan.prompt_len = static_cast<int>(std::min<int64_t>(plan.prompt_len, length - plan.output_len));
  return {};
}

Result<BenchResult> RunBench(Engine& engine, const EngineOptions& options, const BenchPlan& plan,
                             const std::function<void(const BenchResult& so_far)>& progress,
                             CeilingProbe* ceilings) {
  PINION_TRY(Validate(plan));
  EngineLoad warm_up = PlanOf(engine, plan, 0);
  warm_up.requests = std::min(warm_up.requests, warm_up.clients);
  warm_up.output_len = std::min(warm_up.output_len, 8);
  PINION_TRY(RunLoad(engine, warm_up));
  RoundValues values;
  std::vector<std::vector<CounterReading>> counters;  // per round
  std::vector<std::vector<double>> waits;             // per round
  std::vector<Traffic> exchanged;                     // per round
  const uint64_t peak_bytes = PeakRssBytes(getpid());
  LimitTaker limits(ceilings, plan);
  BenchResult result;
  result.engine = engine.info();
  result.model = options.model;
  result.config = ToJson(options);
  result.plan = plan;
  const Conditions before = Conditions::Of({getpid()});
  const EngineStats at_first = engine.stats();
  for (int round = 1; round <= plan.rounds; ++round) {
    const TraceSpan span("round", "number", static_cast<int64_t>(round));
    engine.DropPrefixCache();
    Counters counting = Counters::Start({});
    EngineLoad asked = PlanOf(engine, plan, round);
    if (ceilings) asked.after_step = [&limits](const LoadStep& step) { limits.AfterStep(step); };
    const EngineStats at_start = engine.stats();
    PINION_ASSIGN(const LoadResult load, RunLoad(engine, asked));
    counters.push_back(counting.Stop());
    const EngineStats at_end = engine.stats();
    waits.push_back(WaitShares(at_start, at_end));
    exchanged.push_back(at_end.traffic - at_start.traffic);
    if (options.pipeline_parallel == 1) {
      result.prefill_step = SpreadStepOf(at_end.prefill - at_first.prefill, result.engine.link);
      result.decode_step = SpreadStepOf(at_end.decode - at_first.decode, result.engine.link);
    }
    result.traffic = MedianTraffic(exchanged);
    result.wait_shares = MediansByRank(waits);
    result.counters = MediansOf(counters);
    Take(plan, load, values);
    limits.Take(load, values);
    result.plan.rounds = round;
    result.suspect = Disturbances(before, Conditions::Of({getpid()}), engine.info().threads);
    result.peak_rss_bytes = PeakOfEngine(peak_bytes, ceilings);
    Fill(values, limits, Pools(engine), result);
    progress(result);
  }
  return result;
}

}  // namespace pinion::harness
