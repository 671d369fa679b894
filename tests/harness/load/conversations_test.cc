#include "harness/load/conversations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Written(const std::string& text) {
  const std::string path = ::testing::TempDir() + "pinion_load_file";
  EXPECT_TRUE(WriteFile(path, text));
  return path;
}

size_t Words(const std::string& text) {
  std::string flat = text;
  for (char& letter : flat) letter = letter == '\n' ? ' ' : letter;
  return Split(flat, ' ').size();
}

TEST(Workloads, EveryOneIsKnownByItsName) {
  for (const std::string& name : WorkloadNames()) EXPECT_EQ(FindWorkload(name)->name, name);
  EXPECT_THAT(FindWorkload("poems").error().message, HasSubstr("chat, rag, code"));
}

TEST(Workloads, SameSeedSameTexts) {
  const WorkloadShape shape = *FindWorkload("chat");
  const auto a = MakeConversations(shape, 5, 1, {}), b = MakeConversations(shape, 5, 1, {});
  const auto c = MakeConversations(shape, 5, 2, {});
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(a[i].turns[0].text, b[i].turns[0].text);
    EXPECT_EQ(a[i].turns[0].output_len, b[i].turns[0].output_len);
    EXPECT_NE(a[i].turns[0].text, c[i].turns[0].text);
  }
}

TEST(Workloads, ShorterListIsAPrefixOfALongerOne) {
  const WorkloadShape shape = *FindWorkload("code");
  EXPECT_EQ(MakeConversations(shape, 3, 1, {})[2].turns[0].text,
            MakeConversations(shape, 9, 1, {})[2].turns[0].text);
}

TEST(Workloads, RagSharesItsDocuments) {
  std::set<std::string> contexts, questions;
  for (const Conversation& one : MakeConversations(*FindWorkload("rag"), 40, 1, {})) {
    contexts.insert(one.context);
    questions.insert(one.turns[0].text);
    EXPECT_EQ(Words(one.context), 1500u);
  }
  EXPECT_EQ(contexts.size(), 4u);
  EXPECT_EQ(questions.size(), 40u);
}

TEST(Workloads, NoRequestIsLongerThanTheServerTakes) {
  WorkloadShape shape = *FindWorkload("chat");
  shape.turns = 4;
  size_t turns = 0;
  for (const Conversation& one : MakeConversations(shape, 40, 1, {}, 512)) {
    int tokens = 0;
    for (const Turn& turn : one.turns)
      tokens += static_cast<int>(Words(turn.text)) + turn.output_len;
    EXPECT_LE(tokens, 448);  // an eighth less: a text comes only about to its tokens
    EXPECT_GE(one.turns.size(), 1u);
    turns += one.turns.size();
  }
  EXPECT_LT(turns, 160u) << "those for which there is no room are left out";
  shape = *FindWorkload("rag");  // documents of 1,500 tokens
  for (const Conversation& one : MakeConversations(shape, 4, 1, {}, 512)) {
    EXPECT_EQ(Words(one.context), 224u);
    EXPECT_LE(Words(one.context) + Words(one.turns.at(0).text), 447u);
  }
}

// Words are made so that the server counts the tokens that were asked for.
TEST(TokenScale, TurnsTokensIntoWords) {
  const TokenScale scale = TokenScale::From(16, 16 * 2.5 + 7, 80, 80 * 2.5 + 7);
  EXPECT_TRUE(scale.is_known);
  EXPECT_DOUBLE_EQ(scale.per_word, 2.5);
  EXPECT_DOUBLE_EQ(scale.overhead, 7);
  WorkloadShape shape = *FindWorkload("batch");
  shape.prompt = Lengths::Fixed(257);
  EXPECT_EQ(Words(MakeConversations(shape, 1, 1, scale)[0].turns[0].text), 100u);
  EXPECT_EQ(scale.WordsFor(1), 1);
  EXPECT_FALSE(TokenScale::From(16, 0, 80, 0).is_known);
}

TEST(ShareGpt, TakesQuestionsAndTheLengthsOfAnswers) {
  const std::string path = Written(
      R"([{"id":"a","conversations":[{"from":"human","value":"hi there"},
           {"from":"gpt","value":"one two three"},{"from":"human","value":"more"},
           {"from":"gpt","value":"four"}]},
          {"conversations":[{"from":"gpt","value":"not a question"}]}])");
  const auto one = ReadShareGpt(path, 10, 1, 1, {}, {});
  ASSERT_EQ(one->size(), 1u);
  EXPECT_EQ((*one)[0].turns.size(), 1u);
  EXPECT_EQ((*one)[0].turns[0].text, "hi there");
  EXPECT_EQ((*one)[0].turns[0].output_len, 3);
  const auto both = ReadShareGpt(path, 10, 5, 1, Lengths::Fixed(8), {});
  ASSERT_EQ((*both)[0].turns.size(), 2u);
  EXPECT_EQ((*both)[0].turns[1].output_len, 8);
}

TEST(ShareGpt, ErrorsNameThePosition) {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"conversations\":[]}\n{oops", "line 2"},
      {"[{\"conversations\":3}]", "entry 1"},
      {"[{\"conversations\":[{\"from\":\"human\"},{\"from\":\"gpt\"}]}]", "no text in 'value'"},
      {"[]", "none begins with a question"},
      {"", "none begins with a question"},
      {"[1", "pinion_load_file"},
  };
  for (const auto& [text, where] : cases) {
    const auto read = ReadShareGpt(Written(text), 10, 1, 1, {}, {});
    ASSERT_FALSE(read) << text;
    EXPECT_THAT(read.error().message, HasSubstr(where)) << text;
  }
}

TEST(Trace, ReadsItsThreeForms) {
  const auto mooncake = ReadTrace(Written(
      "{\"timestamp\": 1000, \"input_length\": 10, \"output_length\": 2, \"hash_ids\": [1]}\n"
      "{\"timestamp\": 1500, \"input_length\": 20, \"output_length\": 3}\n"));
  EXPECT_THAT(mooncake->arrival_s, ElementsAre(0, 0.5));
  EXPECT_THAT(mooncake->output_len, ElementsAre(2, 3));
  const auto azure = ReadTrace(
      Written("TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.5,374,44\r\n"
              "2023-11-16 18:17:05.0,396,109\r\n"));
  EXPECT_THAT(azure->arrival_s, ElementsAre(0, 1.5));
  EXPECT_THAT(azure->prompt_len, ElementsAre(374, 396));
  const auto burst = ReadTrace(
      Written("Timestamp,Model,Request tokens,Response tokens,Total tokens\n5,m,472,18,490\n"
              "9,m,100,0,100\n45,m,1087,230,1317\n"));  // the second one failed, and is left out
  EXPECT_THAT(burst->arrival_s, ElementsAre(0, 40));
}

TEST(Trace, DatesKeepTheirFractionBesideAZone) {
  const auto trace = ReadTrace(
      Written("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.25+00:00,374,44\n"
              "2024-05-10T00:00:01.75Z,396,109\n2024-05-10 02:00:02.5+02:00,396,109\n"));
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_THAT(trace->arrival_s, ElementsAre(0, 1.5, 2.25));
}

TEST(Trace, ErrorsNameTheLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"a,b,c\n1,2,3\n", "line 1: the heading 'a,b,c' has no arrival time"},
      {"timestamp,input_length,output_length\n1,2\n", "line 2: it has 2 columns"},
      {"timestamp,input_length,output_length\nnow,2,3\n", "line 2: time 'now'"},
      {"timestamp,input_length,output_length\n2024-05-10 00:00:00.5 or so,2,3\n",
       "line 2: time '2024-05-10 00:00:00.5 or so'"},
      {"timestamp,input_length,output_length\n1,x,3\n", "line 2: length 'x'"},
      {"timestamp,input_length,output_length\n1,-2,3\n", "line 2: prompt length -2"},
      {"timestamp,input_length,output_length\n2,2,3\n1,2,3\n", "line 3: its time is before"},
      {"{\"timestamp\":1}\n", "line 1: no number 'input_length'"},
      {"{\n", "line 1"},
      {"", "has no request"},
  };
  for (const auto& [text, where] : cases) {
    const auto read = ReadTrace(Written(text));
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(read.error().message, HasSubstr(where)) << text;
  }
}

}  // namespace
}  // namespace pinion::harness
