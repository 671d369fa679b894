// The engine against the reference outputs of real checkpoints' small siblings: every architecture,
// in every way of running that must not change the result. One ISA a process (oneDNN's cap cannot
// change): the environment's PINION_TEST_ISA names it, ctest runs one process for each.

#include "tests/engine/model/golden.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "engine/base/log.h"
#include "engine/model/attention_spec.h"
#include "engine/run/generate.h"
#include "engine/run/score.h"
#include "kernels/gemm_plan.h"

namespace pinion {
namespace {

using testing::GoldenPrompt;

const char* TestIsa() {
  const char* isa = std::getenv("PINION_TEST_ISA");
  return isa ? isa : "auto";
}

bool IsaUsable() {
  const auto wanted = kernels::ParseIsa(TestIsa());
  const auto& usable = kernels::UsableIsas();
  return std::string(TestIsa()) == "auto" ||
         (wanted && std::find(usable.begin(), usable.end(), *wanted) != usable.end());
}

struct Setup {
  const char* name;
  std::function<void(EngineOptions&)> change;
};

const Setup kSetups[] = {
    {"Default", [](EngineOptions&) {}},
    {"TwoRanks", [](EngineOptions& o) { o.tensor_parallel = 2, o.threads_bind = "nobind"; }},
    {"FourRanks", [](EngineOptions& o) { o.tensor_parallel = 4, o.threads_bind = "nobind"; }},
    {"ChunksOfSeven", [](EngineOptions& o) { o.max_num_batched_tokens = 7; }},
    {"NoPrefixCache", [](EngineOptions& o) { o.prefix_caching = false; }},
    {"OneSequenceAtATime", [](EngineOptions& o) { o.max_num_seqs = 1; }},
    {"EveryGemmKernel", [](EngineOptions&) {}},
    {"SmallBlocks", [](EngineOptions& o) { o.block_size = 16; }},
    {"TwoRanksInChunksUnderPressure",
     [](EngineOptions& o) {
       o.tensor_parallel = 2, o.threads_bind = "nobind", o.max_num_batched_tokens = 7;
       o.block_size = 16;
     }},
};

// All kernels that this path has for the type, by turns: goldens hold whichever is chosen.
std::string EveryGemmKernel(const std::string& dtype) {
  kernels::GemmRules rules;
  const auto isa = kernels::ParseIsa(TestIsa()).value_or(kernels::UsableIsas().back());
  const auto weights = dtype == "float32"   ? kernels::Dtype::kF32
                       : dtype == "float16" ? kernels::Dtype::kF16
                                            : kernels::Dtype::kBf16;
  for (const kernels::GemmKernel& kernel : kernels::GemmCandidates(isa, weights))
    rules.push_back({2 * rules.size() + 1, kernel});
  return kernels::Format(rules);
}

EngineOptions OptionsFor(const std::string& model, const Setup& setup, const char* dtype) {
  EngineOptions options;
  options.model = testing::ModelFolder(model);
  options.dtype = dtype;
  options.isa = TestIsa();
  options.kv_cache_bytes = 64 << 20;
  setup.change(options);
  if (setup.name == std::string("EveryGemmKernel")) options.gemm_kernel = EveryGemmKernel(dtype);
  return options;
}

std::vector<Prompt> PromptsOf(const std::vector<GoldenPrompt>& golden) {
  std::vector<Prompt> prompts;
  for (const GoldenPrompt& each : golden)
    prompts.push_back({each.input_ids, Json::MakeObject(), {}});
  return prompts;
}

// Index of the first generated token that differs though the reference's choice was clear; -1:
// none. After a near tie (the token chosen within tie_nats of the best) the texts may go on
// differently.
int FirstRealDifference(const GoldenPrompt& golden, const std::vector<int32_t>& got,
                        double tie_nats = 1e-3) {
  for (size_t i = 0; i < golden.greedy_ids.size(); ++i) {
    if (i < got.size() && got[i] == golden.greedy_ids[i]) continue;
    const auto& top = golden.top_logprobs[i];
    const auto chosen = std::find_if(top.begin(), top.end(), [&](const auto& token) {
      return i < got.size() && token.first == got[i];
    });
    const bool tie = chosen != top.end() && top[0].second - chosen->second < tie_nats;
    return tie ? -1 : static_cast<int>(i);
  }
  return -1;
}

// Sum of squared errors, number of logits, the largest error relative to the RMS; KL divergence
// from the reference in nats, summed over positions.
struct LogitError {
  double squares = 0, count = 0, worst = 0;
  double kl = 0, positions = 0;
};

double LogSumExp(const float* logits, size_t n) {
  const double max = *std::max_element(logits, logits + n);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += std::exp(logits[i] - max);
  return max + std::log(sum);
}

double Divergence(const float* want, const float* got, size_t n) {
  const double want_all = LogSumExp(want, n), got_all = LogSumExp(got, n);
  double kl = 0;
  for (size_t i = 0; i < n; ++i) {
    const double p = want[i] - want_all, q = got[i] - got_all;
    kl += std::exp(p) * (p - q);
  }
  return kl;
}

LogitError CompareLogits(Engine& engine, const std::vector<GoldenPrompt>& golden) {
  LogitError error;
  std::map<uint64_t, size_t> seen;
  engine.SetScoreSink(
      [&](uint64_t request, size_t position, const float* logits, size_t vocabulary) {
        const GoldenPrompt& prompt = golden[request];
        EXPECT_EQ(position, seen[request]++) << "positions come in order, each once";
        EXPECT_EQ(vocabulary, prompt.vocabulary);
        const size_t first = prompt.input_ids.size() - prompt.rows;
        if (position < first) return;
        const float* want = prompt.logits.data() + (position - first) * vocabulary;
        for (size_t i = 0; i < vocabulary; ++i) {
          const double difference = static_cast<double>(logits[i]) - want[i];
          error.squares += difference * difference;
          error.worst = std::max(error.worst, std::abs(difference) / prompt.logit_rms);
        }
        error.count += static_cast<double>(vocabulary);
        error.kl += Divergence(want, logits, vocabulary);
        ++error.positions;
      });
  for (size_t i = 0; i < golden.size(); ++i)
    EXPECT_TRUE(engine.Add({i, golden[i].input_ids, {}, true}));
  std::vector<TokenEvent> events;
  while (!engine.idle()) engine.Step(events);
  for (size_t i = 0; i < golden.size(); ++i) EXPECT_EQ(seen[i], golden[i].input_ids.size());
  return error;
}

class Golden : public ::testing::TestWithParam<std::tuple<const char*, const Setup*>> {
 protected:
  void SetUp() override {
    if (!IsaUsable()) GTEST_SKIP() << "this machine has no " << TestIsa();
    SetLogLevel(LogLevel::kError);
    golden_ = testing::LoadGolden(std::get<0>(GetParam()));
  }
  std::unique_ptr<Engine> Start(const char* dtype, const char* kv_cache_dtype = "auto") {
    EngineOptions options = OptionsFor(std::get<0>(GetParam()), *std::get<1>(GetParam()), dtype);
    options.kv_cache_dtype = kv_cache_dtype;
    auto engine = Engine::Start(options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? *std::move(engine) : nullptr;
  }
  void ExpectGreedyTokens(Engine& engine, const char* pass, double tie_nats = 1e-3) {
    SamplingParams params;
    params.max_tokens = 32;
    params.ignore_eos = true;
    const auto results = Generate(engine, nullptr, PromptsOf(golden_), params);
    for (size_t i = 0; i < golden_.size(); ++i) {
      EXPECT_TRUE(results[i].error);
      EXPECT_EQ(FirstRealDifference(golden_[i], results[i].output_ids, tie_nats), -1)
          << pass << ", prompt " << i << ": " << ::testing::PrintToString(results[i].output_ids);
      EXPECT_EQ(results[i].finish, FinishReason::kLength);
    }
  }
  std::vector<GoldenPrompt> golden_;
};
class GoldenFloat32 : public Golden {};
class GoldenHalf : public Golden {};
class GoldenKv : public Golden {};

TEST_P(GoldenFloat32, LogitsAndGreedyTokensAreTheReferences) {
  const auto engine = Start("float32");
  ASSERT_TRUE(engine);
  const LogitError error = CompareLogits(*engine, golden_);
  EXPECT_GT(error.count, 0);
  EXPECT_LT(error.worst, 3e-4);
  ExpectGreedyTokens(*engine, "first");
  // The longest prompts fill whole blocks; the second pass finds them.
  ExpectGreedyTokens(*engine, "again");
  const bool caching = std::get<1>(GetParam())->name != std::string("NoPrefixCache");
  EXPECT_EQ(engine->stats().kv.prefix_hit_tokens > 0, caching);
}

TEST_P(GoldenHalf, Bfloat16ErrorIsAtMostTwiceTheReferences) {
  const auto engine = Start("bfloat16");
  ASSERT_TRUE(engine);
  const LogitError error = CompareLogits(*engine, golden_);
  double reference = 0, rows = 0;
  for (const GoldenPrompt& prompt : golden_) {
    const auto n = static_cast<double>(prompt.rows);
    reference += n * prompt.bf16_rms_error * prompt.bf16_rms_error;
    rows += n;
  }
  EXPECT_LT(std::sqrt(error.squares / error.count), 2 * std::sqrt(reference / rows));
}

TEST_P(GoldenHalf, Float16ErrorIsBelowBfloat16s) {
  const auto engine = Start("float16");
  ASSERT_TRUE(engine);
  const LogitError error = CompareLogits(*engine, golden_);
  EXPECT_LT(std::sqrt(error.squares / error.count), golden_[0].bf16_rms_error / 2);
}

// What a type of the cache may cost in float32 arithmetic, from what its rounding does to a vector.
//
// A float of m mantissa bits in [2^e, 2^(e + 1)) errs by at most 2^(e - m - 1), evenly: its RMS
// error is 2^(e - m - 1) / sqrt(3), between half of 2^-(m + 1) / sqrt(3) times the value and the
// whole of it. An int8 errs by at most half of scale = max / 127, evenly, so by max / 127 /
// sqrt(12); and no vector of d elements has a maximum above sqrt(d) times its RMS. So relative to
// the vector's RMS
//   a float errs by  2^-(m + 1) / sqrt(3) * c, 1/2 <= c <= 1, c nearly the same for every m
//   an int8 errs by  sqrt(d) / 127 / sqrt(12) at most
// Small errors reach the logits in proportion: what float16's become there, measured on the model
// itself, gives the factor, and so what the others' may become. Twice that, because the products
// round the other operand as well (queries and weights to bfloat16, or to 8 and 14 bits: twice the
// variance at most) and because it is one sample of random errors (the rest).
//
// In a mixture of experts a rounding also flips experts, which is in proportion to nothing: twice
// the most that was measured there.
struct KvBound {
  const char* dtype;
  int mantissa_bits;   // 0: int8
  double flipped_rms;  // of the logits' RMS, where experts flip
};
const KvBound kKvBounds[] = {{"fp16", 10, 0.015},
                             {"bf16", 7, 0.1},
                             {"int8", 0, 0.25},
                             {"fp8_e4m3", 3, 0.4},
                             {"fp8_e5m2", 2, 0.8}};
// Ten times float16's own error: more than attention in a few layers makes of it.
constexpr double kLargestFp16Rms = 0.004;
const std::set<std::string> kMixtures = {"mixtral", "qwen3moe", "gptoss", "deepseekv2",
                                         "deepseekv3"};

// How much more a type errs than float16.
double TimesFloat16(const KvBound& bound, size_t dim) {
  if (bound.mantissa_bits > 0) return std::ldexp(1.0, 10 - bound.mantissa_bits);
  const double int8 = std::sqrt(static_cast<double>(dim) / 12) / 127;
  return int8 / (0.5 * std::ldexp(1.0, -11) / std::sqrt(3.0));
}

TEST_P(GoldenKv, LogitsAndGreedyTokensStayWithinTheTypesBounds) {
  const bool flips = kMixtures.contains(std::get<0>(GetParam()));
  double fp16_rms = 0;
  for (const KvBound& bound : kKvBounds) {
    SCOPED_TRACE(bound.dtype);
    const auto engine = Start("float32", bound.dtype);
    ASSERT_TRUE(engine);
    const LogitError error = CompareLogits(*engine, golden_);
    const double rms = std::sqrt(error.squares / error.count);  // absolute, in nats
    const double relative = rms / golden_[0].logit_rms;
    const KvShape shape = CachedShape(engine->model().spec);
    if (fp16_rms == 0) {
      fp16_rms = relative;  // the first
      EXPECT_LT(fp16_rms, flips ? bound.flipped_rms : kLargestFp16Rms);
    }
    const double times = TimesFloat16(bound, std::max(shape.key_dim, shape.value_dim));
    EXPECT_LT(relative, flips ? bound.flipped_rms : 2 * fp16_rms * times);
    // KL(p, q) = Var_p(error) / 2 + the third order; the variance is the mean square where errors
    // do not know which tokens are likely. Twice that.
    EXPECT_LT(error.kl / error.positions, rms * rms);
    // Greedy tokens may differ where the reference's two best lie within eight standard deviations:
    // two logits that err by four each. With fewer bits near ties are the rule.
    if (flips || relative > 0.06) continue;
    ExpectGreedyTokens(*engine, "first", 8 * rms);
    ExpectGreedyTokens(*engine, "again", 8 * rms);
  }
}

// The first models go through every setup; the others through those that bear on a model's own
// mathematics, rather than on the engine around it.
const char* const kFirstModels[] = {"llama", "llama2", "qwen2", "opt", "tiny-trained"};
const char* const kModels[] = {"mistral", "qwen3",      "phi3",      "phi3-longrope", "gemma2",
                               "gemma3",  "granite",    "olmo2",     "mixtral",       "qwen3moe",
                               "gptoss",  "deepseekv2", "deepseekv3"};

std::vector<const Setup*> Setups(const std::set<std::string>& names = {}) {
  std::vector<const Setup*> setups;
  for (const Setup& setup : kSetups)
    if (names.empty() || names.contains(setup.name)) setups.push_back(&setup);
  return setups;
}

std::string CaseName(const ::testing::TestParamInfo<Golden::ParamType>& info) {
  std::string name = std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param)->name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

const std::set<std::string> kOwnSetups = {"Default", "TwoRanks", "ChunksOfSeven", "NoPrefixCache"};

INSTANTIATE_TEST_SUITE_P(FirstModels, GoldenFloat32,
                         ::testing::Combine(::testing::ValuesIn(kFirstModels),
                                            ::testing::ValuesIn(Setups())),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Models, GoldenFloat32,
                         ::testing::Combine(::testing::ValuesIn(kModels),
                                            ::testing::ValuesIn(Setups(kOwnSetups))),
                         CaseName);
const std::set<std::string> kKvSetups = {"Default", "TwoRanksInChunksUnderPressure"};
INSTANTIATE_TEST_SUITE_P(FirstModels, GoldenKv,
                         ::testing::Combine(::testing::ValuesIn(kFirstModels),
                                            ::testing::ValuesIn(Setups(kKvSetups))),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Models, GoldenKv,
                         ::testing::Combine(::testing::ValuesIn(kModels),
                                            ::testing::ValuesIn(Setups({"Default"}))),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(FirstModels, GoldenHalf,
                         ::testing::Combine(::testing::ValuesIn(kFirstModels),
                                            ::testing::ValuesIn(Setups(kOwnSetups))),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Models, GoldenHalf,
                         ::testing::Combine(::testing::ValuesIn(kModels),
                                            ::testing::ValuesIn(Setups(kOwnSetups))),
                         CaseName);

}  // namespace
}  // namespace pinion
