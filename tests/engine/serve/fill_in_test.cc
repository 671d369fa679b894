#include "engine/serve/fill_in.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/text/hf_tokenizer.h"

namespace pinion {
namespace {

// A tokenizer of single letters and these special tokens.
std::unique_ptr<Tokenizer> TokenizerWith(const std::vector<std::string>& special) {
  Json vocabulary = Json::MakeObject();
  for (const char* letter : {"a", "b"})
    vocabulary.Set(letter, static_cast<int>(vocabulary.object().size()));
  Json added = Json::MakeArray();
  for (const std::string& text : special)
    added.Append(Json(Json::Object{{"content", text}, {"special", true}}));
  const Json model(Json::Object{
      {"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", Json::MakeArray()}});
  auto made = HfTokenizer::Make(
      Json(Json::Object{{"model", model}, {"added_tokens", std::move(added)}}), Json());
  EXPECT_TRUE(made);
  return std::move(*made);
}

TEST(FillInTokens, WritesTheGapLast) {
  const auto tokenizer =
      TokenizerWith({"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>"});
  const auto tokens = FillInTokens::Find(*tokenizer);
  ASSERT_TRUE(tokens);
  EXPECT_EQ(tokens->Prompt("a", {"b"}), "<fim_prefix>a<fim_suffix>b<fim_middle>");
  EXPECT_EQ(tokens->Prompt("a", {"b", "c", {{"f", "t"}}}),
            "t\n<fim_prefix>a<fim_suffix>b<fim_middle>c");
  EXPECT_EQ(tokens->ends(), std::vector<int32_t>{*tokenizer->TokenId("<fim_pad>")});
}

TEST(FillInTokens, NamesFilesIfTheModelKnowsThem) {
  const auto tokenizer = TokenizerWith(
      {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"});
  const auto tokens = FillInTokens::Find(*tokenizer);
  ASSERT_TRUE(tokens);
  EXPECT_EQ(tokens->Prompt("a", {"b", "", {{"f", "t"}, {"g", "u"}}}),
            "<|repo_name|>project\n<|file_sep|>f\nt\n<|file_sep|>g\nu\n<|file_sep|>file\n"
            "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>");
  EXPECT_EQ(tokens->Prompt("a", {"b"}), "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>");
  EXPECT_EQ(tokens->ends().size(), 2u) << "another file's beginning ends the gap as well";
}

TEST(FillInTokens, AreNoneIfOneOfThemIsMissing) {
  EXPECT_FALSE(FillInTokens::Find(*TokenizerWith({"<fim_prefix>", "<fim_suffix>"})));
  EXPECT_FALSE(FillInTokens::Find(*TokenizerWith({})));
}

}  // namespace
}  // namespace pinion
