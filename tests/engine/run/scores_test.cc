// How rerankers and classifiers score: by their folder's activations and tokens.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "engine/base/file.h"
#include "engine/run/embed.h"
#include "tests/engine/run/pooling_golden.h"
#include "tests/engine/run/started_engine.h"

namespace pinion {
namespace {

// `fields`: of a cross-encoder's config.json, beside its own.
ModelFiles CrossEncoderWith(std::string_view fields) {
  ModelFiles files = FindModel(PoolingFolder("bert-reranker")).value();
  files.config.Set("sentence_transformers", Json());
  const Json more = Json::Parse(fields).value();
  for (const auto& [key, value] : more.object()) files.config.Set(key, value);
  return files;
}

TEST(Scores, ScoresAreActivatedAsConfigJsonSays) {
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

TEST(Scores, RefusesActivationsThatItDoesNotHave) {
  ModelFiles files = CrossEncoderWith(R"({"sentence_transformers":
                                          {"activation_fn": "torch.nn.modules.activation.Tanh"}})");
  const auto task = ApplyTask("auto", files);
  ASSERT_FALSE(task);
  EXPECT_EQ(task.error().message,
            "'activation_fn' is 'torch.nn.modules.activation.Tanh', want Identity or Sigmoid of "
            "torch.nn");
}

// A folder as sentence-transformers 5.4 and later write a cross-encoder's, with these modules
// behind its transformer.
class CrossEncoderFolder {
 public:
  CrossEncoderFolder(const std::string& fixture, std::string_view config,
                     std::string_view modules = "") {
    std::string pattern = ::testing::TempDir() + "/pinion-pairs-XXXXXX";
    path_ = mkdtemp(pattern.data());
    std::filesystem::copy(PoolingFolder(fixture), path_);
    CHECK(WriteFile(path_ + "/config_sentence_transformers.json", config));
    CHECK(WriteFile(
        path_ + "/modules.json",
        R"([{"path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"})" +
            std::string(modules) + "]"));
    std::filesystem::create_directory(path_ + "/1_LogitScore");
  }
  ~CrossEncoderFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

constexpr std::string_view kLogitScore =
    R"(, {"path": "1_LogitScore",
          "type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"})";

TEST(Scores, ACrossEncodersFolderIsNotAnEmbedder) {
  const CrossEncoderFolder folder("bert-reranker",
                                  R"({"model_type": "CrossEncoder",
                                      "activation_fn": "torch.nn.modules.linear.Identity"})");
  auto files = FindModel(folder.path());
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_FALSE(files->embedder);
  EXPECT_EQ(ApplyTask("auto", *files).value(), ModelTask::kScore);
  EXPECT_EQ(FactsOf(*files, ModelTask::kScore).pair_activation, ScoreActivation::kNone)
      << "config.json asks for a sigmoid, but the newer file counts";
}

TEST(Scores, AGenerativeCrossEncoderScoresByTheTokensOfItsFolder) {
  const CrossEncoderFolder folder("qwen3-reranker", R"({"model_type": "CrossEncoder"})",
                                  kLogitScore);
  EngineOptions options = PoolingOptions("qwen3-reranker");
  options.model = folder.path();
  ModelFiles files = FindModel(folder.path()).value();
  const auto tokenizer = OpenTokenizer(files).value();
  const auto write_ids = [&](int32_t yes, int32_t no) {
    CHECK(WriteFile(folder.path() + "/1_LogitScore/config.json",
                    Json(Json::Object{{"true_token_id", yes}, {"false_token_id", no}}).Dump()));
  };
  const int32_t yes = tokenizer->TokenId("yes").value(), no = tokenizer->TokenId("no").value();
  write_ids(yes, no);
  const PoolingGolden golden("qwen3-reranker");
  EXPECT_LE(WorstPoolingError(golden, PoolGolden(*Start(options), golden)), kPoolingBound);
  write_ids(no, yes);
  const auto weights = OpenWeights(files).value();
  const auto pooler = Pooler::Load(files, ModelTask::kScore, *weights);
  ASSERT_FALSE(pooler);
  EXPECT_NE(pooler.error().message.find("want those of 'yes' and 'no'"), std::string::npos)
      << pooler.error().message;
}

TEST(Scores, RefusesCrossEncodersOfOtherModules) {
  const CrossEncoderFolder folder(
      "bert-mean", R"({"model_type": "CrossEncoder"})",
      R"(, {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"})");
  const auto files = FindModel(folder.path());
  ASSERT_FALSE(files);
  EXPECT_NE(files.error().message.find("a cross-encoder has a module 'Pooling', want Transformer"),
            std::string::npos)
      << files.error().message;
}

TEST(Scores, FollowTheirActivations) {
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
TEST(Scores, ACrossEncoderThatAsksForNoActivationScoresByItsLogits) {
  std::string pattern = ::testing::TempDir() + "/pinion-reranker-XXXXXX";
  EngineOptions options = PoolingOptions("bert-reranker");
  options.model = mkdtemp(pattern.data());
  std::filesystem::copy(PoolingFolder("bert-reranker"), options.model);
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
                kPoolingBound * golden.rms);
  }
  std::filesystem::remove_all(options.model);
}

}  // namespace
}  // namespace pinion
