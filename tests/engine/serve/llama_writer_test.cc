#include "engine/serve/llama_writer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pinion {
namespace llama_tests {
namespace {

ChoicePart Part(std::string text, const char* reason = "", Json stop = {}) {
  ChoicePart part;
  part.text = std::move(text);
  part.finish_reason = reason;
  part.stop_reason = std::move(stop);
  part.usage = {7, 4, 5};
  part.prompt_s = 0.5;
  part.decode_s = 2;
  return part;
}

LlamaWriter Writer() { return {GenerationRequest(), {"cmpl-1", 1, "m", false}}; }

Json Whole(const ChoicePart& part) { return *Json::Parse(Writer().Whole({part}, {})); }

std::vector<Json> Read(std::string_view events) {
  std::vector<Json> read;
  while (!events.empty()) {
    const size_t end = events.find("\n\n");
    read.push_back(*Json::Parse(events.substr(6, end - 6)));
    events.remove_prefix(end + 2);
  }
  return read;
}

TEST(LlamaWriter, TellsWhyAnAnswerEnded) {
  const auto told = [](const char* reason, Json stop) {
    const Json whole = Whole(Part("x", reason, std::move(stop)));
    return whole.Find("stop_type")->string() + ":" + whole.Find("stopping_word")->string();
  };
  EXPECT_EQ(told("stop", {}), "eos:");
  EXPECT_EQ(told("stop", Json(5)), "eos:") << "a stop token's id";
  EXPECT_EQ(told("stop", Json("END")), "word:END");
  EXPECT_EQ(told("length", {}), "limit:");
}

TEST(LlamaWriter, RepeatsALengthOfNone) {
  GenerationRequest request;
  request.prompt_only = true;
  request.params.max_tokens = 1;  // as schema.cc leaves it
  const std::string whole = LlamaWriter(request, {"cmpl-1", 1, "m", false}).Whole({Part("")}, {});
  EXPECT_EQ(Json::Parse(whole)->Find("generation_settings")->Find("n_predict")->integer(), 0);
}

TEST(LlamaWriter, CountsComputedTokensAndTheirRate) {
  const Json whole = Whole(Part("x", "stop"));
  EXPECT_EQ(whole.Find("timings")->Dump(),
            R"({"cache_n":5,"prompt_n":2,"prompt_ms":500.0,"prompt_per_token_ms":250.0,)"
            R"("prompt_per_second":4.0,"predicted_n":4,"predicted_ms":2000.0,)"
            R"("predicted_per_token_ms":500.0,"predicted_per_second":2.0})");
  EXPECT_EQ(whole.Find("tokens_evaluated")->integer(), 7);
  EXPECT_EQ(whole.Find("tokens_predicted")->integer(), 4);
  EXPECT_EQ(whole.Find("tokens_cached")->integer(), 11);
}

TEST(LlamaWriter, StreamsTextsAndThenTheEnd) {
  LlamaWriter writer = Writer();
  EXPECT_EQ(writer.Part(Part(""), {}), "") << "a token whose text is held back";
  const auto first = Read(writer.Part(Part("a\n"), {}));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].Find("content")->string() + first[0].Find("stop")->Dump(), "a\nfalse");
  const auto last = Read(writer.Part(Part("b", "length"), {}));
  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(last[0].Find("content")->string(), "b");
  EXPECT_EQ(last[1].Find("content")->string() + last[1].Find("stop")->Dump(), "true");
  EXPECT_TRUE(last[1].Find("has_new_line")->boolean()) << "it was in an earlier part";
  EXPECT_EQ(writer.End({}), "") << "its streams have no [DONE]";
}

TEST(LlamaWriter, MakesAListOfSeveralAnswers) {
  ChoicePart second = Part("y", "stop");
  second.index = 1;
  const Json both = *Json::Parse(Writer().Whole({Part("x", "stop"), second}, {}));
  ASSERT_EQ(both.array().size(), 2u);
  EXPECT_EQ(both.array()[1].Find("index")->integer(), 1);
}

}  // namespace
}  // namespace llama_tests
}  // namespace pinion
