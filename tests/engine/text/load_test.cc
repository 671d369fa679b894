// Tokenizers from folders: the result of each kind of file, and the limits for hostile ones.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "tests/engine/text/text_cases.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Load : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/pinion-text-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& name, std::string_view text) {
    ASSERT_TRUE(WriteFile(folder_ + "/" + name, text));
  }
  std::unique_ptr<Tokenizer> Get() {
    auto loaded = LoadTokenizer(folder_);
    EXPECT_TRUE(loaded) << loaded.error().message;
    return loaded ? std::move(*loaded) : nullptr;
  }
  std::string ErrorOf(std::string_view tokenizer_json) {
    Write("tokenizer.json", tokenizer_json);
    const auto loaded = LoadTokenizer(folder_);
    return loaded ? "no error" : loaded.error().message;
  }
  // A tokenizer.json with one more key.
  std::string ErrorWith(std::string_view more) {
    return ErrorOf(
        StrCat(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, )", more, "}"));
  }
  std::string folder_;
};

TEST_F(Load, ReadsVocabularyAndMergesLikeGpt2) {
  Write("vocab.json", R"({"<s>": 0, "a": 1, "b": 2, "ab": 3, "Ġ": 4, "Ġab": 5, "<pad>": 6})");
  Write("merges.txt", "#version: 0.2\na b\nĠ ab\n");
  Write("special_tokens_map.json", R"({"bos_token": "<s>", "pad_token": {"content": "<pad>"}})");
  Write("tokenizer_config.json", R"({"add_bos_token": true})");
  const auto tokenizer = Get();
  ASSERT_TRUE(tokenizer);
  EXPECT_THAT(*tokenizer->Encode("ab ab<pad>", true), ElementsAre(0, 3, 5, 6));
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{0, 3, 5, 6}, true), "ab ab");
  EXPECT_EQ(tokenizer->special_tokens().at("pad_token"), "<pad>");
}

TEST_F(Load, ShowsNoControlCharacterOfAMerge) {
  const auto merge = [&](const std::string& text) {
    const Json tokenizer =
        Json::Object{{"model", Json::Object{{"type", "BPE"},
                                            {"vocab", Json::Object{{"\a\x1b[2Jé", 0}}},
                                            {"merges", Json::Array{Json(text)}}}}};
    return ErrorOf(tokenizer.Dump());
  };
  EXPECT_THAT(merge("\a\x1b[2Jé \x7f\xC2\x9B"
                    "7m"),
              HasSubstr("merge 0 ('??[2Jé' + '??7m') needs '??7m', which"));
  EXPECT_THAT(merge("\x1b]0;x"), HasSubstr("merge '?]0;x' is not two tokens"));
  // A long token is cut, between characters.
  EXPECT_THAT(merge("b" + std::string(78, 'a') + "éé c"),
              HasSubstr("needs 'b" + std::string(78, 'a') + "...'"));
}

TEST_F(Load, ReadsSentencePieceModels) {
  const std::string source = StrCat(tests::TestData(), "/text/sentencepiece");
  std::filesystem::copy(source + "/tokenizer.model", folder_ + "/tokenizer.model");
  const auto tokenizer = Get();
  ASSERT_TRUE(tokenizer);
  const auto cases = Json::ParseFile(source + "/cases.json");
  ASSERT_TRUE(cases);
  for (const Json& c : cases->array()) {
    const std::string& text = c.Find("text")->string();
    std::vector<int32_t> ids = ReadIds(*c.Find("ids"));
    EXPECT_EQ(tokenizer->Encode(text, false), ids) << text;
    EXPECT_EQ(tokenizer->Decode(ids, true), c.Find("decoded")->string());
    StreamDecoder stream(*tokenizer, {});
    std::string streamed;
    for (int32_t id : ids) streamed += stream.Push(id);
    EXPECT_EQ(streamed + stream.Flush(), c.Find("decoded")->string());
    ids.insert(ids.begin(), 1);
    EXPECT_EQ(tokenizer->Encode(text, true), ids) << text;
  }
  EXPECT_THAT(*tokenizer->Encode("</s>", false), ElementsAre(2));
  EXPECT_EQ(tokenizer->special_tokens().at("eos_token"), "</s>");
  EXPECT_EQ(tokenizer->vocabulary_size(), 600u);
}

TEST_F(Load, PrefersTheTemplateFileAndTheDefaultOfAList) {
  Write("tokenizer.json", R"({"model": {"vocab": {}, "merges": []}})");
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "t"},
                                                       {"name": "default", "template": "d"}]})");
  EXPECT_EQ(Get()->chat_template(), "d");
  Write("chat_template.jinja", "file");
  EXPECT_EQ(Get()->chat_template(), "file");
}

TEST_F(Load, TakesTheTemplateOfAProcessorIfThereIsNoOther) {
  Write("tokenizer.json", R"({"model": {"vocab": {}, "merges": []}})");
  Write("chat_template.json", R"({"chat_template": "a processor's"})");
  EXPECT_EQ(Get()->chat_template(), "a processor's");
  Write("tokenizer_config.json", R"({"chat_template": "the tokenizer's"})");
  EXPECT_EQ(Get()->chat_template(), "the tokenizer's");
}

TEST_F(Load, HasATemplateOfItsOwnForTools) {
  Write("tokenizer.json", R"({"model": {"vocab": {}, "merges": []}})");
  Write("tokenizer_config.json", R"({"chat_template": "only"})");
  EXPECT_EQ(Get()->tool_template(), "only");
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "d"},
                                                       {"name": "rag", "template": "r"},
                                                       {"name": "tool_use", "template": "t"}]})");
  EXPECT_EQ(Get()->chat_template(), "d");
  EXPECT_EQ(Get()->tool_template(), "t");
  auto asked = Get();
  asked->SetChatTemplate("asked");
  EXPECT_EQ(asked->chat_template(), "asked");
  EXPECT_EQ(asked->tool_template(), "asked");
  Write("chat_template.jinja", "file");
  EXPECT_EQ(Get()->tool_template(), "file") << "it stands for the whole list, as in transformers";
  std::filesystem::create_directory(folder_ + "/additional_chat_templates");
  Write("additional_chat_templates/tool_use.jinja", "tool file");
  EXPECT_EQ(Get()->chat_template(), "file");
  EXPECT_EQ(Get()->tool_template(), "tool file");
}

TEST_F(Load, NamesTheFilesThatAFolderLacks) {
  const auto loaded = LoadTokenizer(folder_);
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message, HasSubstr("tokenizer.json, vocab.json with merges.txt"));
}

TEST_F(Load, NamesUnknownComponents) {
  EXPECT_THAT(ErrorWith(R"("normalizer": {"type": "Magic"})"), HasSubstr("normalizer 'Magic'"));
  EXPECT_THAT(ErrorWith(R"("pre_tokenizer": {"type": "Sequence", "pretokenizers":
                           [{"type": "Cutter"}]})"),
              HasSubstr("pre-tokenizer 'Cutter'"));
  EXPECT_THAT(ErrorWith(R"("post_processor": {"type": "P"})"), HasSubstr("post-processor 'P'"));
  EXPECT_THAT(ErrorWith(R"("decoder": {"type": "CTC"})"), HasSubstr("decoder 'CTC'"));
  EXPECT_THAT(ErrorOf(R"({"model": {"type": "WordLevel", "vocab": {}}})"),
              HasSubstr("tokenizer model 'WordLevel'"));
}

TEST_F(Load, RefusesBrokenModelsOfWords) {
  const auto word_piece = [&](std::string_view fields) {
    return ErrorOf(StrCat(R"({"model": {"type": "WordPiece", )", fields, "}}"));
  };
  EXPECT_THAT(word_piece(R"("vocab": {"a": 0})"), HasSubstr("unk_token '[UNK]'"));
  EXPECT_THAT(word_piece(R"("vocab": {"[UNK]": 0}, "max_input_chars_per_word": -1)"),
              HasSubstr("'max_input_chars_per_word' is -1, want 0 or more"));
  EXPECT_THAT(word_piece(StrCat(R"("vocab": {"[UNK]": 0, ")", std::string(1025, 'a'), R"(": 1})")),
              HasSubstr("token 1 has 1025 bytes, want at most 1024"));
  const auto unigram = [&](std::string_view fields) {
    return ErrorOf(StrCat(R"({"model": {"type": "Unigram", )", fields, "}}"));
  };
  EXPECT_THAT(unigram(R"("vocab": {})"), HasSubstr("'vocab' is missing, want an array"));
  EXPECT_THAT(unigram(R"("vocab": [["a", -1], ["b"]])"),
              HasSubstr("token 1 is not [token, score]"));
  EXPECT_THAT(unigram(R"("vocab": [["a", -1]], "unk_id": 1)"),
              HasSubstr("'unk_id' is 1, want 0 to 0"));
}

TEST_F(Load, NamesTextThatNoTokenCanWrite) {
  Write("tokenizer.json", R"({"model": {"type": "Unigram", "vocab": [["a", -1]]}})");
  EXPECT_EQ(Get()->Encode("aa", true), std::vector<int32_t>({0, 0}));
  const auto ids = Get()->Encode("ab", true);
  ASSERT_FALSE(ids);
  EXPECT_THAT(ids.error().message, HasSubstr("no token for 'b'"));
}

TEST_F(Load, RefusesAbsurdIds) {
  EXPECT_THAT(ErrorOf(R"({"model": {"vocab": {"a": 4000000000}, "merges": []}})"),
              HasSubstr("token 'a' has id 4000000000"));
  EXPECT_THAT(ErrorOf(R"({"model": {"vocab": {"a": -1}, "merges": []}})"), HasSubstr("id -1"));
  EXPECT_THAT(ErrorWith(R"("added_tokens": [{"id": 1099511627776, "content": "x"}])"),
              HasSubstr("token 'x' has id 1099511627776"));
}

TEST_F(Load, RefusesMergesOfUnknownTokens) {
  EXPECT_THAT(ErrorOf(R"({"model": {"vocab": {"a": 0}, "merges": ["a b"]}})"), HasSubstr("'b'"));
  EXPECT_THAT(ErrorOf(R"({"model": {"vocab": {"a": 0}, "merges": [["a", "a"]]}})"),
              HasSubstr("'aa'"));
  EXPECT_THAT(ErrorOf(R"({"model": {"vocab": {"a": 0}, "merges": ["a a a"]}})"),
              HasSubstr("merge 'a a a'"));
}

TEST_F(Load, RefusesExpressionsThatDoNotCompile) {
  const auto with = [&](const std::string& regex) {
    return ErrorWith(StrCat(R"("pre_tokenizer": {"type": "Split", "behavior": "Isolated",
                                "pattern": {"Regex": )",
                            Json(regex).Dump(), "}}"));
  };
  EXPECT_THAT(with("("), HasSubstr("does not compile"));
  EXPECT_THAT(with("[a"), HasSubstr("without ']'"));
  EXPECT_THAT(with("[a&&[b&&c]]"), HasSubstr("intersection"));
  EXPECT_THAT(with(std::string(5000, '[')), HasSubstr("nested"));
  EXPECT_THAT(with(std::string(5000, '(')), HasSubstr("does not compile"));
}

TEST_F(Load, GivesUpOnExpressionsThatBacktrackForever) {
  Write("tokenizer.json", R"({"model": {"vocab": {}, "merges": []}, "pre_tokenizer": {
      "type": "Split", "behavior": "Isolated", "pattern": {"Regex": "(a+)+$"}}})");
  const auto ids = Get()->Encode(std::string(40, 'a') + "b", false);
  ASSERT_FALSE(ids);
  EXPECT_THAT(ids.error().message, HasSubstr("fails on this text"));
}

TEST_F(Load, RefusesABrokenCharsmap) {
  EXPECT_THAT(ErrorWith(R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": "!"})"),
              HasSubstr("base64"));
  EXPECT_THAT(ErrorWith(R"("normalizer": {"type": "Precompiled", "precompiled_charsmap":
                           "////fw=="})"),
              HasSubstr("states a trie"));
}

// After any change to a good file, loading gives an error or a tokenizer that works.
TEST_F(Load, SurvivesDamagedFiles) {
  const auto good = ReadFile(StrCat(tests::TestData(), "/models/llama2/tokenizer.json"));
  ASSERT_TRUE(good);
  const std::vector<std::string> fragments = {"null", "-1",  "\"\"", "[]",
                                              "{}",   "1e9", "true", "\"a\""};
  std::mt19937 rng(20261120);
  size_t refused = 0, loaded = 0;
  for (int round = 0; round < 200; ++round) {
    Json json = *Json::Parse(*good);
    Json* at = &json;  // a random value inside, made something else
    while ((at->is_object() && !at->object().empty()) || (at->is_array() && !at->array().empty())) {
      at = at->is_object() ? &at->object()[rng() % at->object().size()].second
                           : &at->array()[rng() % at->array().size()];
      if (rng() % 4 == 0) break;
    }
    *at = *Json::Parse(fragments[rng() % fragments.size()]);
    const auto tokenizer = MakeTokenizer(json, Json());
    if (!tokenizer) {
      EXPECT_FALSE(tokenizer.error().message.empty());
      ++refused;
      continue;
    }
    ++loaded;
    const auto ids = (*tokenizer)->Encode("Hello <s>world</s> 你好", true);
    if (ids) (*tokenizer)->Decode(*ids, false);
  }
  EXPECT_GT(refused, 20u);
  EXPECT_GT(loaded, 20u);
}

TEST_F(Load, EncodesLongTextInReasonableTime) {
  for (const char* model : {"llama2", "llama"}) {
    const auto tokenizer = LoadTokenizer(StrCat(tests::TestData(), "/models/", model));
    ASSERT_TRUE(tokenizer);
    // Quadratic merging of a million characters would take hours, and the test would be stopped.
    for (const char c : {'a', ' ', '\n', '<'}) {
      const auto ids = (*tokenizer)->Encode(std::string(1'000'000, c), false);
      ASSERT_TRUE(ids) << ids.error().message;
      EXPECT_GT(ids->size(), 1000u);
    }
  }
}

TEST_F(Load, ReplacesInvalidBytesBeforeEncoding) {
  const auto tokenizer = LoadTokenizer(StrCat(tests::TestData(), "/models/llama"));
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(*(*tokenizer)->Encode("<\xFF>", false), *(*tokenizer)->Encode("<\uFFFD>", false));
}

}  // namespace
}  // namespace pinion
