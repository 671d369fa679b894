#include "engine/checkpoint/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/unread_layers.h"
#include "engine/spec/tensor_list.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Fixture(const std::string& model) {
  return StrCat(tests::TestData(), "/models/", model);
}

// A scratch folder; the environment variables for the hub's cache point into it.
class Model : public ::testing::Test {
 protected:
  Model() {
    std::string pattern = ::testing::TempDir() + "/pinion-model-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    setenv("HF_HUB_CACHE", (folder_ + "/hub").c_str(), 1);
  }
  ~Model() override {
    unsetenv("HF_HUB_CACHE");
    fs::remove_all(folder_);
  }
  // A copy of a fixture's config and weights.
  std::string Copy(const std::string& model) {
    std::string copy = folder_ + "/copy";
    fs::remove_all(copy);
    fs::copy(Fixture(model), copy);
    return copy;
  }
  static std::string ErrorOf(const std::string& model) {
    const auto files = FindModel(model);
    return files ? "no error" : files.error().message;
  }
  std::string folder_;
};

// Also in checkpoints that spell their prefix in another way: what compares two checkpoints by
// their names would find nothing to compare.
TEST_F(Model, WeightsTellTheNamesOfAllThatTheModelReads) {
  for (const char* name : {"llama", "gemma4-e", "gemma3n", "qwen3.5", "gptoss", "llama4"}) {
    const ModelFiles files = FindModel(Fixture(name)).value();
    const auto names = OpenWeights(files).value()->Names();
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end())) << name;
    for (const TensorSpec& wanted : TensorList(files.spec))
      EXPECT_TRUE(std::binary_search(names.begin(), names.end(), wanted.name)) << wanted.name;
  }
}

TEST_F(Model, OpensEveryFixture) {
  for (const std::string& model : tests::ModelFixtures()) {
    const auto files = FindModel(Fixture(model));
    ASSERT_TRUE(files) << files.error().message;
    const auto source = OpenWeights(*files);
    EXPECT_TRUE(source) << source.error().message;
  }
}

TEST_F(Model, CallsAnAdapterByItsName) {
  const std::string adapter = folder_ + "/adapter";
  fs::create_directory(adapter);
  EXPECT_THAT(ErrorOf(adapter), HasSubstr("holds no config.json"));
  ASSERT_TRUE(WriteFile(adapter + "/adapter_config.json", R"({"peft_type": "LORA"})"));
  EXPECT_THAT(ErrorOf(adapter), AllOf(HasSubstr("is an adapter, which Pinion does not apply"),
                                      HasSubstr("merge it into its base model")));
}

TEST_F(Model, JoinsTheGenerationConfig) {
  const std::string copy = Copy("llama");
  ASSERT_TRUE(WriteFile(copy + "/generation_config.json", R"({"eos_token_id": [2, 5]})"));
  EXPECT_THAT(FindModel(copy)->spec.eos_ids, ElementsAre(2, 5));
  ASSERT_TRUE(WriteFile(copy + "/generation_config.json", "{"));
  EXPECT_THAT(ErrorOf(copy), HasSubstr("generation_config.json"));
  fs::remove(copy + "/generation_config.json");
  EXPECT_THAT(FindModel(copy)->spec.eos_ids, ElementsAre(2));
}

// Settings are read whole into memory, so an endless or huge file must cost little of it.
TEST_F(Model, BoundsEachFileOfSettings) {
  const std::string copy = Copy("llama");
  ASSERT_TRUE(WriteFile(copy + "/modules.json", "[]"));
  for (const char* name :
       {"config.json", "generation_config.json", "modules.json", "hf_quant_config.json"}) {
    const std::string file = StrCat(copy, "/", name), kept = folder_ + "/kept";
    const auto refused = [&] {
      EXPECT_THAT(ErrorOf(copy), HasSubstr(StrCat("'", file, "' is larger than 64.0 MiB"))) << name;
    };
    if (fs::exists(file)) fs::rename(file, kept);
    fs::create_symlink("/dev/zero", file);
    refused();
    fs::remove(file);
    ASSERT_TRUE(WriteFile(file, "{}"));
    fs::resize_file(file, uint64_t{1} << 30);
    refused();
    fs::remove(file);
    if (fs::exists(kept)) fs::rename(kept, file);
  }
}

TEST_F(Model, EndsWithTheTokenizersEndAsWell) {
  const std::string copy = Copy("llama"), config = copy + "/tokenizer_config.json";
  const auto ends_by = [&](const std::string& text) {
    EXPECT_TRUE(WriteFile(config, text));
    const auto files = FindModel(copy);
    EXPECT_TRUE(files) << files.error().message;
    return files ? files->spec.eos_ids : std::vector<int32_t>{};
  };
  const std::string added =
      R"("added_tokens_decoder": {"2": {"content": "</s>"}, "7": {"content": "<|im_end|>"}})";
  EXPECT_THAT(ends_by(R"({"eos_token": "<|im_end|>", )" + added + "}"), ElementsAre(2, 7));
  EXPECT_THAT(ends_by(R"({"eos_token": {"content": "<|im_end|>"}, )" + added + "}"),
              ElementsAre(2, 7));
  EXPECT_THAT(ends_by(R"({"eos_token": "</s>", )" + added + "}"), ElementsAre(2));
  EXPECT_THAT(ends_by(R"({"eos_token": null, )" + added + "}"), ElementsAre(2));
  EXPECT_THAT(ends_by("{" + added + "}"), ElementsAre(2));
  // Files that name no token of the model, or cannot be read, add nothing.
  for (const char* strange :
       {R"({"eos_token": "<|im_end|>"})", R"({"eos_token": 7})", R"({"eos_token": "x")", "[]",
        R"({"eos_token": "x", "added_tokens_decoder": {"-1": {"content": "x"}}})",
        R"({"eos_token": "x", "added_tokens_decoder": {"999999999": {"content": "x"}}})",
        R"({"eos_token": "x", "added_tokens_decoder": {"seven": {"content": "x"}, "8": 3}})",
        R"({"eos_token": "x", "added_tokens_decoder": [{"content": "x"}]})"})
    EXPECT_THAT(ends_by(strange), ElementsAre(2)) << strange;
}

TEST_F(Model, TellsOfLayersThatItsConfigDoesNotCount) {
  const std::string copy = Copy("llama");
  const auto said = [&](const char* key, int value) {
    Json config = Json::ParseFile(copy + "/config.json").value();
    config.Set(key, value);
    EXPECT_TRUE(WriteFile(copy + "/config.json", config.Dump()));
    const ModelFiles files = FindModel(copy).value();
    return UnreadLayers(files, *OpenWeights(files).value()).value_or("nothing");
  };
  EXPECT_EQ(said("num_hidden_layers", 3), "nothing");
  EXPECT_THAT(said("num_hidden_layers", 2),
              AllOf(HasSubstr("tensor 'model.layers.2.input_layernorm.weight'"),
                    HasSubstr("config.json's 'num_hidden_layers' is 2;")));
  EXPECT_EQ(said("num_nextn_predict_layers", 1), "nothing") << "it predicts further tokens";
}

// Among them some with layers that predict further tokens, whether their config counts them or not.
TEST_F(Model, FindsNoUncountedLayerInAnyFixture) {
  for (const std::string& model : tests::ModelFixtures()) {
    const ModelFiles files = FindModel(Fixture(model)).value();
    EXPECT_EQ(UnreadLayers(files, *OpenWeights(files).value()), std::nullopt) << model;
  }
  const std::string copy = Copy("glm4-moe");
  Json config = Json::ParseFile(copy + "/config.json").value();
  config.Set("num_nextn_predict_layers", 0);
  ASSERT_TRUE(WriteFile(copy + "/config.json", config.Dump()));
  const ModelFiles files = FindModel(copy).value();
  EXPECT_EQ(UnreadLayers(files, *OpenWeights(files).value()), std::nullopt);
}

TEST_F(Model, RefusesALengthThatIsNone) {
  const std::string copy = folder_ + "/embedder";
  fs::copy(StrCat(tests::TestData(), "/embedders/bert-mean"), copy, fs::copy_options::recursive);
  for (const char* length : {"-1", "0", "1000000000000000000", "1e18", R"("8")"}) {
    ASSERT_TRUE(WriteFile(copy + "/sentence_bert_config.json",
                          StrCat(R"({"max_seq_length": )", length, "}")));
    EXPECT_THAT(ErrorOf(copy),
                AllOf(HasSubstr("sentence_bert_config.json: "), HasSubstr("'max_seq_length'")))
        << length;
  }
  ASSERT_TRUE(WriteFile(copy + "/sentence_bert_config.json", R"({"max_seq_length": null})"));
  EXPECT_EQ(ErrorOf(copy), "no error");
}

TEST_F(Model, NamesTheMisshapenTensorAndItsFile) {
  const std::string copy = Copy("llama2");
  Json config = Json::ParseFile(copy + "/config.json").value();
  config.Set("intermediate_size", 264);
  ASSERT_TRUE(WriteFile(copy + "/config.json", config.Dump()));
  const auto weights = OpenWeights(FindModel(copy).value());
  ASSERT_FALSE(weights);
  EXPECT_THAT(weights.error().message, AllOf(HasSubstr("model.layers.0.mlp.gate_proj.weight"),
                                             HasSubstr("model.safetensors"), HasSubstr("[256, 96]"),
                                             HasSubstr("[264, 96]")));
}

TEST_F(Model, NamesTheMissingTensor) {
  const std::string copy = Copy("llama");
  Json config = Json::ParseFile(copy + "/config.json").value();
  config.Set("tie_word_embeddings", false);
  ASSERT_TRUE(WriteFile(copy + "/config.json", config.Dump()));
  const auto weights = OpenWeights(FindModel(copy).value());
  ASSERT_FALSE(weights);
  EXPECT_THAT(weights.error().message,
              AllOf(HasSubstr("lm_head.weight"), HasSubstr("index.json"), HasSubstr("29")));
}

// The same names but for their beginning, as Meta's OPT checkpoints have them.
TEST_F(Model, FindsTensorsUnderAnotherPrefix) {
  const std::string copy = Copy("opt");
  const std::string path = copy + "/model.safetensors";
  std::string bytes = ReadFile(path).value();
  for (size_t at; (at = bytes.find("\"model.decoder.")) != std::string::npos;)
    bytes.replace(at, 15, "      \"decoder.");  // the header keeps its length
  ASSERT_TRUE(WriteFile(path, bytes));
  const auto renamed = OpenWeights(FindModel(copy).value());
  ASSERT_TRUE(renamed) << renamed.error().message;
  const auto plain = OpenWeights(FindModel(Fixture("opt")).value()).value();
  std::vector<std::byte> scratch;
  const std::string name = "model.decoder.layers.1.fc1.weight";
  const TensorInfo a = (*renamed)->Find(name).value(), b = plain->Find(name).value();
  EXPECT_EQ(a.name, name);
  const std::byte* left = (*renamed)->Rows(a, 7, 2, scratch);
  const std::byte* right = plain->Rows(b, 7, 2, scratch);
  EXPECT_EQ(std::vector(left, left + 256), std::vector(right, right + 256));
}

// The tensors of a safetensors file under names that begin otherwise.
void Rename(const std::string& path, const std::string& from, const std::string& to) {
  const std::string bytes = ReadFile(path).value();
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  std::string header = bytes.substr(sizeof length, length);
  const std::string data = bytes.substr(sizeof length + length);
  for (size_t at = 0; (at = header.find(from, at)) != std::string::npos; at += to.size())
    header.replace(at, from.size(), to);
  header.append((8 - header.size() % 8) % 8, ' ');
  length = header.size();
  std::string head(sizeof length, '\0');
  std::memcpy(head.data(), &length, sizeof length);
  ASSERT_TRUE(WriteFile(path, head + header + data));
}

// As transformers has written models of text and images, before 4.52 and since.
TEST_F(Model, FindsTheLanguageModelInsideAWrapper) {
  const auto plain = OpenWeights(FindModel(Fixture("gemma3")).value()).value();
  for (const char* prefix : {"\"language_model.model.", "\"model.language_model."}) {
    const std::string copy = Copy("gemma3");
    Rename(copy + "/model.safetensors", "\"model.", prefix);
    Json text = Json::ParseFile(copy + "/config.json").value();
    text.Set("architectures", nullptr);
    const Json config = Json::Object{
        {"architectures", Json::Array{"Gemma3ForConditionalGeneration"}}, {"text_config", text}};
    ASSERT_TRUE(WriteFile(copy + "/config.json", config.Dump()));
    const auto files = FindModel(copy);
    ASSERT_TRUE(files) << files.error().message;
    const auto inside = OpenWeights(*files);
    ASSERT_TRUE(inside) << inside.error().message;
    EXPECT_EQ(files->spec.wrapper, "Gemma3ForConditionalGeneration");
    const std::string name = "model.layers.1.mlp.up_proj.weight";
    std::vector<std::byte> scratch;
    const std::byte* left = (*inside)->Rows((*inside)->Find(name).value(), 7, 1, scratch);
    const std::byte* right = plain->Rows(plain->Find(name).value(), 7, 1, scratch);
    EXPECT_EQ(std::vector(left, left + 128), std::vector(right, right + 128));
  }
}

TEST_F(Model, NamesThePathsItTried) {
  EXPECT_THAT(ErrorOf("preset:gpt-5"), AllOf(HasSubstr("'gpt-5'"), HasSubstr("llama-3.2-1b")));
  EXPECT_THAT(ErrorOf(folder_), AllOf(HasSubstr("config.json"), HasSubstr(folder_)));
  EXPECT_THAT(ErrorOf("/nowhere/at/all"), HasSubstr("neither a folder nor org/name"));
  EXPECT_THAT(ErrorOf("org/name"), AllOf(HasSubstr(folder_ + "/hub/models--org--name"),
                                         HasSubstr("hf download org/name")));
  ASSERT_TRUE(WriteFile(folder_ + "/model.safetensors", "?"));
  EXPECT_THAT(ErrorOf(folder_ + "/model.safetensors"), HasSubstr("is a file"));
  ASSERT_TRUE(WriteFile(folder_ + "/model.gguf", "GGUF"));
  EXPECT_THAT(ErrorOf(folder_ + "/model.gguf"), HasSubstr("model.gguf: its version"));
}

TEST_F(Model, FindsTheSnapshotInTheHubCache) {
  const std::string cached = folder_ + "/hub/models--org--name";
  fs::create_directories(cached + "/refs");
  EXPECT_THAT(ErrorOf("org/name"), HasSubstr("refs/main"));
  ASSERT_TRUE(WriteFile(cached + "/refs/main", "../../.."));
  EXPECT_THAT(ErrorOf("org/name"), HasSubstr("want a revision"));
  ASSERT_TRUE(WriteFile(cached + "/refs/main", "0123abcd\n"));
  EXPECT_THAT(ErrorOf("org/name"), HasSubstr("snapshots/0123abcd"));
  fs::create_directories(cached + "/snapshots");
  fs::copy(Fixture("opt"), cached + "/snapshots/0123abcd");
  const auto files = FindModel("org/name");
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->name, "org/name");
  EXPECT_EQ(files->folder, cached + "/snapshots/0123abcd");
}

}  // namespace
}  // namespace pinion
