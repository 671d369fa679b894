// Embedders and rerankers from text to vector, against the reference's embeddings and scores, in
// every way of running that must not change them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>

#include "engine/run/embed.h"
#include "engine/run/engine.h"
#include "engine/run/pooler.h"
#include "engine/run/pooling_input.h"
#include "kernels/gemm_plan.h"
#include "kernels/isa.h"
#include "tests/engine/run/pooling_golden.h"
#include "tests/engine/run/started_engine.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

std::vector<std::string> Fixtures() {
  std::vector<std::string> names = tests::EncoderFixtures();
  names.insert(names.end(), {"qwen3-embedding", "qwen3-reranker"});
  return names;
}

// Whether this machine has the path that the environment names.
bool HasTestIsa() {
  const char* isa = std::getenv("PINION_TEST_ISA");
  const auto named = kernels::ParseIsa(isa ? isa : "auto");
  const auto& usable = kernels::UsableIsas();
  return !isa || std::string(isa) == "auto" ||
         (named && std::find(usable.begin(), usable.end(), *named) != usable.end());
}

// With one GEMM kernel, as results follow from how many rows each product has otherwise.
EngineOptions OfOneKernel(const std::string& name) {
  EngineOptions options = PoolingOptions(name);
  const auto isa = kernels::ParseIsa(options.isa).value_or(kernels::UsableIsas().back());
  options.gemm_kernel = kernels::Name(kernels::GemmCandidates(isa, kernels::Dtype::kF32).front());
  return options;
}

class Pooling : public ::testing::TestWithParam<std::string> {};

TEST_P(Pooling, MatchesTheReferenceHoweverTextsShareSteps) {
  if (!HasTestIsa()) GTEST_SKIP() << "this machine lacks " << std::getenv("PINION_TEST_ISA");
  const PoolingGolden golden(GetParam());
  const std::pair<const char*, std::function<void(EngineOptions&)>> setups[] = {
      {"all in one step", [](EngineOptions&) {}},
      {"two ranks", [](EngineOptions& o) { o.tensor_parallel = 2; }},
      {"two stages", [](EngineOptions& o) { o.pipeline_parallel = 2; }},
      {"one at a time", [](EngineOptions& o) { o.max_num_seqs = 1; }},
      {"steps of 400 tokens", [](EngineOptions& o) { o.max_num_batched_tokens = 400; }}};
  for (const auto& [name, change] : setups) {
    EngineOptions options = PoolingOptions(GetParam());
    change(options);
    EXPECT_LE(WorstPoolingError(golden, PoolGolden(*Start(options), golden)), kPoolingBound)
        << name;
  }
}

// Whichever steps the texts share, and whatever is in flight at the same time. Attention of a step
// that may be cut into parts takes fewer rows at a time, and may add up in another order what they
// see: at most as many float32 numbers as the longest text has tokens.
TEST_P(Pooling, StagesGiveTheResultOfOne) {
  const PoolingGolden golden(GetParam());
  EngineOptions options = OfOneKernel(GetParam());
  const auto wanted = PoolGolden(*Start(options), golden);
  options.pipeline_parallel = 2;
  size_t longest = 0;
  for (size_t i = 0; i < wanted.size(); ++i)
    longest = std::max(longest, golden.Ids(i, "input_ids").size());
  const double bound = static_cast<double>(longest) * 0x1p-24;
  EXPECT_LE(WorstPoolingError(golden, wanted, PoolGolden(*Start(options), golden)), bound);
  options.max_num_batched_tokens = static_cast<int>(longest);
  const auto engine = Start(options);
  EXPECT_LE(WorstPoolingError(golden, wanted, PoolGolden(*engine, golden)), bound);
  EXPECT_GT(engine->stats().steps, 1u);
}

TEST_P(Pooling, ReadsTextsAsTheReferenceDoes) {
  const PoolingGolden golden(GetParam());
  ModelFiles files = FindModel(PoolingFolder(GetParam())).value();
  const ModelTask task = ApplyTask(PoolingOptions(GetParam()).task, files).value();
  const PoolingFacts facts = FactsOf(files, task);
  const auto tokenizer = OpenTokenizer(files).value();
  for (size_t i = 0; i < golden.wanted.size(); ++i) {
    const Json& text = *golden.json.Find("prompts")->array()[i].Find("text");
    if (!text.is_string() && !text.is_array()) continue;
    const bool pair = text.is_array();
    const auto encoding =
        facts.yes_no
            ? Result<Encoding>(Encoding{tokenizer->Encode(text.string(), false).value(), {}})
        : pair ? EncodePair(*tokenizer, facts, text.array()[0].string(), text.array()[1].string())
               : EncodeText(*tokenizer, facts, text.string());
    ASSERT_TRUE(encoding) << encoding.error().message;
    EXPECT_EQ(encoding->ids, golden.Ids(i, "input_ids")) << i;
    if (facts.has_types && pair) {
      EXPECT_EQ(encoding->types, golden.Ids(i, "token_type_ids")) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Pooling, ::testing::ValuesIn(Fixtures()),
                         [](const auto& info) { return tests::TestName(info.param); });

TEST(PoolingOfChunks, TakesEachRowOnceOverSeveralSteps) {
  const PoolingGolden golden("qwen3-embedding");
  EngineOptions options = PoolingOptions("qwen3-embedding");
  options.max_num_batched_tokens = 7;  // causal: a text may be cut
  EXPECT_LE(WorstPoolingError(golden, PoolGolden(*Start(options), golden)), kPoolingBound);
}

// Several chunks of a text are in flight at once, beside those of others. They are of fewer rows
// than attention takes at a time.
TEST(PoolingOfChunks, StagesGiveTheResultOfOneToTheBit) {
  for (const char* model : {"qwen3-embedding", "qwen3-reranker"}) {
    const PoolingGolden golden(model);
    EngineOptions options = OfOneKernel(model);
    options.max_num_batched_tokens = 7;
    const auto wanted = PoolGolden(*Start(options), golden);
    options.pipeline_parallel = 2;
    EXPECT_EQ(PoolGolden(*Start(options), golden), wanted) << model;
  }
}

TEST(PoolingTask, RefusesTasksThatTheModelLacksByName) {
  const auto embedder = Start(PoolingOptions("qwen3-embedding"));
  Request request;
  request.prompt_ids = {1};
  const auto refused = embedder->Add(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "the model was started to embed, not to generate");
  ModelFiles files = FindModel(PoolingFolder("bert-cls")).value();
  const auto task = ApplyTask("generate", files);
  ASSERT_FALSE(task);
  EXPECT_NE(task.error().message.find("can only embed"), std::string::npos);
}

TEST(PoolingLines, ErrorsNameLineAndFieldAndOthersGoOn) {
  const auto engine = Start(PoolingOptions("qwen3-embedding"));
  const auto tokenizer = OpenTokenizer(engine->model()).value();
  const auto line = [](const char* text) { return Json::Parse(text).value(); };
  const std::vector<JsonLine> lines = {{1, line(R"({"text": 5})")},
                                       {3, line(R"({"input_ids": [1, 99999]})")},
                                       {4, line(R"({"text": "a", "prompt_name": "no"})")},
                                       {5, line(R"({"text": "good"})")},
                                       {6, line("{}")}};
  const auto answers = EmbedLines(*engine, tokenizer.get(), lines, {.dimensions = 8}).value();
  const auto error = [&](size_t i) { return answers[i].Find("error")->string(); };
  EXPECT_EQ(error(0).rfind("line 1: 'text' is ", 0), 0u) << error(0);
  EXPECT_EQ(error(1).rfind("line 3: prompt token 99999", 0), 0u) << error(1);
  EXPECT_EQ(error(2).rfind("line 4: 'prompt_name'", 0), 0u) << error(2);
  EXPECT_EQ(error(4), "line 6: the line has neither 'text' nor 'input_ids'");
  const auto& embedding = answers[3].Find("embedding")->array();
  ASSERT_EQ(embedding.size(), 8u);
  double squares = 0;
  for (const Json& value : embedding) squares += value.number() * value.number();
  EXPECT_NEAR(squares, 1, 1e-5) << "a shortened embedding is of length 1 again";
  EXPECT_FALSE(EmbedLines(*engine, tokenizer.get(), lines, {.dimensions = 65}));
}

TEST(PoolingKinds, DoAsTheirNamesSay) {
  ModelFiles files;
  files.spec.hidden = 2;
  files.embedder.emplace();
  const auto weights = OpenWeights(FindModel(PoolingFolder("bert-cls")).value()).value();
  const auto pool = [&](PoolingKind kind, float second = 2) {
    files.embedder->pooling = kind;
    const auto pooler = Pooler::Load(files, ModelTask::kEmbed, *weights).value();
    const float rows[][2] = {{1, 8}, {second, -4}, {6, 2}, {3, 0}};
    const Pooler::Rows wanted = pooler->Wanted(4);
    for (size_t i = wanted.first; i < wanted.last; ++i) pooler->Take(7, i, rows[i], 2);
    return pooler->Finish(7, 4);
  };
  EXPECT_EQ(pool(PoolingKind::kFirst), (std::vector<float>{1, 8}));
  EXPECT_EQ(pool(PoolingKind::kLast), (std::vector<float>{3, 0}));
  EXPECT_EQ(pool(PoolingKind::kMean), (std::vector<float>{3, 1.5f}));
  EXPECT_EQ(pool(PoolingKind::kMeanSqrt), (std::vector<float>{6, 3}));
  EXPECT_EQ(pool(PoolingKind::kMax), (std::vector<float>{6, 8}));
  EXPECT_TRUE(std::isnan(pool(PoolingKind::kMax, NAN)[0])) << "a NaN is not passed over";
  EXPECT_FLOAT_EQ(pool(PoolingKind::kWeightedMean)[0], 3.5f);  // (1 + 4 + 18 + 12) / 10
}

}  // namespace
}  // namespace pinion
