// Embedders and rerankers from text to vector, against the reference's embeddings and scores, in
// every way of running that must not change them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>

#include "engine/base/check.h"
#include "engine/base/file.h"
#include "engine/run/embed.h"
#include "engine/run/engine.h"
#include "engine/run/pooler.h"
#include "engine/run/pooling_input.h"
#include "kernels/gemm_plan.h"
#include "kernels/isa.h"
#include "tests/engine/decoder/golden.h"
#include "tests/engine/run/started_engine.h"
#include "tests/engine/run/test_target.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

constexpr double kBound = 3e-4;  // of the reference's RMS (the fixtures' README)

std::string Folder(const std::string& name) { return tests::TestData() + "/embedders/" + name; }

EngineOptions OptionsFor(const std::string& name) {
  EngineOptions options;
  options.model = Folder(name);
  options.dtype = "float32";
  options.kv_cache_bytes = 16 << 20;
  options.threads_bind = "nobind";
  setenv("OMP_NUM_THREADS", "1", 1);
  options.pools = true;
  if (name == "qwen3-reranker") options.task = "score";
  testing::SetTestTarget(options);
  return options;
}

// The texts of a golden, and what the reference makes of them: embeddings or logits.
struct PoolingGolden {
  Json json;
  std::vector<std::vector<float>> wanted;
  double rms = 0;  // of all that is wanted

  explicit PoolingGolden(const std::string& name)
      : json(Json::ParseFile(Folder(name) + "/golden.json").value()) {
    const auto source = OpenSafetensorsFile(Folder(name) + "/golden.safetensors").value();
    const size_t count = json.Find("prompts")->array().size();
    const bool scores = source->Find("logits.float32").has_value();
    std::vector<std::byte> scratch;
    double squares = 0, values = 0;
    for (size_t i = 0; i < count; ++i) {
      const auto info = source
                            ->Find(scores ? "logits.float32"
                                          : "prompt" + std::to_string(i) + ".embedding.float32")
                            .value();
      const auto rows = scores ? size_t{1} : static_cast<size_t>(info.shape[0]);
      const auto* data =
          reinterpret_cast<const float*>(source->Rows(info, scores ? i : 0, rows, scratch));
      wanted.emplace_back(data, data + rows);
      for (const float x : wanted.back()) squares += double{x} * x, ++values;
    }
    rms = std::sqrt(squares / values);
  }

  std::vector<int32_t> Ids(size_t i, const char* key) const {
    const Json* list = json.Find("prompts")->array()[i].Find(key);
    return list ? testing::Ids(*list) : std::vector<int32_t>();
  }
};

std::vector<std::vector<float>> PoolAll(Engine& engine, const PoolingGolden& golden) {
  const PoolingFacts facts = FactsOf(engine.model(), engine.info().task);
  for (size_t i = 0; i < golden.wanted.size(); ++i) {
    Request request;
    request.id = i;
    request.pool = true;
    request.prompt_ids = golden.Ids(i, "input_ids");
    if (facts.has_types) request.types = golden.Ids(i, "token_type_ids");
    CHECK(engine.Add(std::move(request)));
  }
  std::vector<std::vector<float>> pooled(golden.wanted.size());
  std::vector<TokenEvent> events;
  while (!engine.idle()) engine.Step(events);
  for (const TokenEvent& event : events)
    pooled[event.request] = facts.task == ModelTask::kEmbed
                                ? FinishEmbedding(event.pooled, 0, facts.normalises)
                                : event.pooled;
  return pooled;
}

// Of what is the golden's, or another result of its texts, as a part of the golden's RMS.
double WorstError(const PoolingGolden& golden, const std::vector<std::vector<float>>& wanted,
                  const std::vector<std::vector<float>>& got) {
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i].size() == wanted[i].size()) << got[i].size();
    for (size_t j = 0; j < got[i].size(); ++j)
      worst = std::max(worst, std::abs(double{got[i][j]} - wanted[i][j]) / golden.rms);
  }
  return worst;
}
double WorstError(const PoolingGolden& golden, const std::vector<std::vector<float>>& got) {
  return WorstError(golden, golden.wanted, got);
}

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
  EngineOptions options = OptionsFor(name);
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
    EngineOptions options = OptionsFor(GetParam());
    change(options);
    EXPECT_LE(WorstError(golden, PoolAll(*Start(options), golden)), kBound) << name;
  }
}

// Whichever steps the texts share, and whatever is in flight at the same time. Attention of a step
// that may be cut into parts takes fewer rows at a time, and may add up in another order what they
// see: at most as many float32 numbers as the longest text has tokens.
TEST_P(Pooling, StagesGiveWhatOneGives) {
  const PoolingGolden golden(GetParam());
  EngineOptions options = OfOneKernel(GetParam());
  const auto wanted = PoolAll(*Start(options), golden);
  options.pipeline_parallel = 2;
  size_t longest = 0;
  for (size_t i = 0; i < wanted.size(); ++i)
    longest = std::max(longest, golden.Ids(i, "input_ids").size());
  const double bound = static_cast<double>(longest) * 0x1p-24;
  EXPECT_LE(WorstError(golden, wanted, PoolAll(*Start(options), golden)), bound);
  options.max_num_batched_tokens = static_cast<int>(longest);
  const auto engine = Start(options);
  EXPECT_LE(WorstError(golden, wanted, PoolAll(*engine, golden)), bound);
  EXPECT_GT(engine->stats().steps, 1u);
}

TEST_P(Pooling, ReadsTextsAsTheReferenceDoes) {
  const PoolingGolden golden(GetParam());
  ModelFiles files = FindModel(Folder(GetParam())).value();
  const ModelTask task = ApplyTask(OptionsFor(GetParam()).task, files).value();
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
  EngineOptions options = OptionsFor("qwen3-embedding");
  options.max_num_batched_tokens = 7;  // causal: a text may be cut
  EXPECT_LE(WorstError(golden, PoolAll(*Start(options), golden)), kBound);
}

// Several chunks of a text are in flight at once, beside those of others. They are of fewer rows
// than attention takes at a time.
TEST(PoolingOfChunks, StagesGiveWhatOneGivesToTheBit) {
  for (const char* model : {"qwen3-embedding", "qwen3-reranker"}) {
    const PoolingGolden golden(model);
    EngineOptions options = OfOneKernel(model);
    options.max_num_batched_tokens = 7;
    const auto wanted = PoolAll(*Start(options), golden);
    options.pipeline_parallel = 2;
    EXPECT_EQ(PoolAll(*Start(options), golden), wanted) << model;
  }
}

TEST(PoolingTask, RefusesWhatTheModelDoesNotDoByName) {
  const auto embedder = Start(OptionsFor("qwen3-embedding"));
  Request request;
  request.prompt_ids = {1};
  const auto refused = embedder->Add(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "the model was started to embed, not to generate");
  ModelFiles files = FindModel(Folder("bert-cls")).value();
  const auto task = ApplyTask("generate", files);
  ASSERT_FALSE(task);
  EXPECT_NE(task.error().message.find("can only embed"), std::string::npos);
}

// `fields`: of a cross-encoder's config.json, beside its own.
ModelFiles CrossEncoderWith(std::string_view fields) {
  ModelFiles files = FindModel(Folder("bert-reranker")).value();
  files.config.Set("sentence_transformers", Json());
  const Json more = Json::Parse(fields).value();
  for (const auto& [key, value] : more.object()) files.config.Set(key, value);
  return files;
}

TEST(PoolingTask, ScoresAreActivatedAsConfigJsonSays) {
  const auto of_pair = [](std::string_view fields) {
    return FactsOf(CrossEncoderWith(fields), ModelTask::kScore).pair_activation;
  };
  using enum ScoreActivation;
  EXPECT_EQ(of_pair("{}"), kSigmoid);
  EXPECT_EQ(of_pair(R"({"sentence_transformers": {"version": "5.1.0"}})"), kSigmoid);
  EXPECT_EQ(of_pair(R"({"sentence_transformers":
                        {"activation_fn": "torch.nn.modules.activation.Sigmoid"}})"),
            kSigmoid);
  EXPECT_EQ(of_pair(R"({"sentence_transformers":
                        {"activation_fn": "torch.nn.modules.linear.Identity"}})"),
            kNone);
  EXPECT_EQ(of_pair(R"({"sbert_ce_default_activation_function":
                        "torch.nn.modules.linear.Identity"})"),
            kNone);
  const auto of_labels = [](std::string_view fields) {
    return FactsOf(CrossEncoderWith(fields), ModelTask::kScore).label_activation;
  };
  EXPECT_EQ(of_labels("{}"), kSoftmax);
  EXPECT_EQ(of_labels(R"({"problem_type": "single_label_classification"})"), kSoftmax);
  EXPECT_EQ(of_labels(R"({"problem_type": "multi_label_classification"})"), kSigmoid);
  EXPECT_EQ(of_labels(R"({"problem_type": "regression"})"), kNone);
}

TEST(PoolingTask, RefusesActivationsThatItDoesNotHave) {
  ModelFiles files = CrossEncoderWith(R"({"sentence_transformers":
                                          {"activation_fn": "torch.nn.modules.activation.Tanh"}})");
  const auto task = ApplyTask("auto", files);
  ASSERT_FALSE(task);
  EXPECT_EQ(task.error().message,
            "'activation_fn' is 'torch.nn.modules.activation.Tanh', want Identity or Sigmoid of "
            "torch.nn");
}

TEST(PoolingScores, AreWhatTheirActivationsSay) {
  const std::vector<float> logits = {0, std::log(3.0f)};
  EXPECT_EQ(Activated(logits, ScoreActivation::kNone), logits);
  const auto each = Activated(logits, ScoreActivation::kSigmoid);
  EXPECT_FLOAT_EQ(each[0], 0.5f);
  EXPECT_FLOAT_EQ(each[1], 0.75f);
  const auto all = Activated(logits, ScoreActivation::kSoftmax);
  EXPECT_FLOAT_EQ(all[0], 0.25f);
  EXPECT_FLOAT_EQ(all[1], 0.75f);
  EXPECT_FLOAT_EQ(Activated({0}, ScoreActivation::kSoftmax)[0], 0.5f);
}

// As the most used ones of sentence-transformers: without a function, a score is the logit.
TEST(PoolingLines, ACrossEncoderThatAsksForNoActivationScoresByItsLogits) {
  std::string pattern = ::testing::TempDir() + "/pinion-reranker-XXXXXX";
  EngineOptions options = OptionsFor("bert-reranker");
  options.model = mkdtemp(pattern.data());
  std::filesystem::copy(Folder("bert-reranker"), options.model);
  ASSERT_TRUE(WriteFile(options.model + "/config.json",
                        CrossEncoderWith(R"({"sentence_transformers": {"activation_fn":
                                             "torch.nn.modules.linear.Identity"}})")
                            .config.Dump()));
  const auto engine = Start(options);
  const PoolingGolden golden("bert-reranker");
  const auto tokenizer = OpenTokenizer(engine->model()).value();
  for (size_t i = 0; i < golden.wanted.size(); ++i) {
    const Json& text = *golden.json.Find("prompts")->array()[i].Find("text");
    if (!text.is_array()) continue;
    const Json::Array& pair = text.array();
    const Json line = Json::Object{{"query", pair[0]}, {"documents", Json::Array{pair[1]}}};
    const auto answers = RankLines(*engine, *tokenizer, {{1, line}}, /*logits=*/false).value();
    EXPECT_NEAR(answers[0].Find("scores")->array()[0].number(), golden.wanted[i][0],
                kBound * golden.rms);
  }
  std::filesystem::remove_all(options.model);
}

TEST(PoolingLines, ErrorsNameLineAndFieldAndOthersGoOn) {
  const auto engine = Start(OptionsFor("qwen3-embedding"));
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

TEST(PoolingKinds, AreWhatTheirNamesSay) {
  ModelFiles files;
  files.spec.hidden = 2;
  files.embedder.emplace();
  const auto weights = OpenWeights(FindModel(Folder("bert-cls")).value()).value();
  const auto pool = [&](PoolingKind kind) {
    files.embedder->pooling = kind;
    const auto pooler = Pooler::Load(files, ModelTask::kEmbed, *weights).value();
    const float rows[][2] = {{1, 8}, {2, -4}, {6, 2}, {3, 0}};
    const Pooler::Rows wanted = pooler->Wanted(4);
    for (size_t i = wanted.first; i < wanted.last; ++i) pooler->Take(7, i, rows[i], 2);
    return pooler->Finish(7, 4);
  };
  EXPECT_EQ(pool(PoolingKind::kFirst), (std::vector<float>{1, 8}));
  EXPECT_EQ(pool(PoolingKind::kLast), (std::vector<float>{3, 0}));
  EXPECT_EQ(pool(PoolingKind::kMean), (std::vector<float>{3, 1.5f}));
  EXPECT_EQ(pool(PoolingKind::kMeanSqrt), (std::vector<float>{6, 3}));
  EXPECT_EQ(pool(PoolingKind::kMax), (std::vector<float>{6, 8}));
  EXPECT_FLOAT_EQ(pool(PoolingKind::kWeightedMean)[0], 3.5f);  // (1 + 4 + 18 + 12) / 10
}

}  // namespace
}  // namespace pinion
