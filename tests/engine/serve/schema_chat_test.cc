// Conversations: messages as clients send them, and what only chats ask for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/serve/field_readers.h"
#include "tests/engine/serve/schema_bodies.h"

namespace pinion {
namespace {

using testing::HasSubstr;

TEST(Schema, AnswersWithTextAlone) {
  const std::string start = R"({"messages":[{"role":"user","content":"x"}],"modalities":)";
  EXPECT_TRUE(Chat(start + R"(["text"]})"));
  EXPECT_TRUE(Chat(start + "null}"));
  for (const char* bad : {R"(["text","audio"]})", R"("text"})", "[7]}"}) {
    const auto refused = Chat(start + bad);
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().param, "modalities");
  }
}

TEST(Schema, ReadsTextsInTheFormsThatClientsSendBack) {
  const auto request = Chat(
      R"({"messages":[{"role":"user","content":[{"type":"input_text","text":"a"},"b"]},
          {"role":"assistant","content":[{"type":"output_text","text":"c"},
                                         {"type":"refusal","refusal":"no"}]}]})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->conversation.messages.Dump(),
            R"([{"role":"user","content":"a\nb"},)"
            R"({"role":"assistant","content":[{"type":"text","text":"c"},)"
            R"({"type":"text","text":"no"}]}])");
  EXPECT_FALSE(Chat(R"({"messages":[{"role":"user","content":[{"type":"refusal","text":"a"}]}]})"));
}

TEST(Schema, TurnsMessagesIntoTheFormOfTemplates) {
  auto request = Chat(R"({"messages":[
      {"role":"system","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]},
      {"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",
          "function":{"name":"f","arguments":"{\"x\": 1}"}}]},
      {"role":"user","content":"hi","name":"me"}],
      "tools":[{"type":"function","function":{"name":"f"}}],
      "chat_template_kwargs":{"enable_thinking":false}})");
  ASSERT_TRUE(request) << request.error().message;
  const Conversation& chat = request->conversation;
  const auto& messages = chat.messages.array();
  EXPECT_EQ(TextOfContent(*messages[0].Find("content")), "one\ntwo");
  EXPECT_EQ(messages[1].Find("content")->string(), "");
  const Json& call = messages[1].Find("tool_calls")->array()[0];
  EXPECT_EQ(call.Find("function")->Find("arguments")->Find("x")->integer(), 1);
  EXPECT_EQ(messages[2].Find("name")->string(), "me");
  EXPECT_EQ(chat.tools.array().size(), 1u);
  EXPECT_FALSE(chat.template_kwargs.Find("enable_thinking")->boolean());
  EXPECT_TRUE(chat.add_generation_prompt);
}

TEST(Schema, DropsEmptyFieldsOfAMessage) {
  auto request = Chat(R"({"messages":[{"role":"user","content":"a","name":"n"},
      {"role":"assistant","content":null,"tool_calls":[],"refusal":null,"audio":null}]})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->conversation.messages.Dump(),
            R"([{"role":"user","content":"a","name":"n"},{"role":"assistant","content":""}])");
}

TEST(Schema, EchoesOnlyTheAssistantsWords) {
  const auto echoed = [](const std::string& role, const char* echo) {
    auto request = Chat(R"({"messages":[{"role":")" + role + R"(","content":"a"}],"echo":)" + echo +
                        R"(,"logprobs":true,"max_completion_tokens":1})");
    EXPECT_FALSE(request->prompt_only);
    EXPECT_EQ(request->params.prompt_logprobs, -1);
    return request->echo ? request->echoed : "nothing";
  };
  EXPECT_EQ(echoed("assistant", "true"), "a");
  EXPECT_EQ(echoed("assistant", "false"), "nothing");
  EXPECT_EQ(echoed("user", "true"), "nothing");
}

TEST(Schema, ReadsChatLimitsAndLogprobs) {
  const std::string messages = R"("messages":[{"role":"user","content":"hi"}])";
  auto open = Chat("{" + messages + "}");
  ASSERT_TRUE(open);
  EXPECT_FALSE(open->max_tokens_given);
  EXPECT_EQ(open->params.logprobs, -1);
  auto both = Chat("{" + messages + R"(,"max_tokens":5,"max_completion_tokens":7})");
  ASSERT_TRUE(both);
  EXPECT_EQ(both->params.max_tokens, 7);
  for (const char* more :
       {R"("max_completion_tokens":0)", R"("max_tokens":5,"max_completion_tokens":-1)"}) {
    const auto refused = Chat("{" + messages + "," + more + "}");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().param, "max_completion_tokens");
    EXPECT_THAT(refused.error().message, HasSubstr("'max_completion_tokens' is "));
  }
  auto chosen = Chat("{" + messages + R"(,"logprobs":true})");
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->params.logprobs, 0);
  auto top = Chat("{" + messages + R"(,"logprobs":true,"top_logprobs":4})");
  ASSERT_TRUE(top);
  EXPECT_EQ(top->params.logprobs, 4);
  EXPECT_FALSE(Chat("{" + messages + R"(,"top_logprobs":4})"));
}

TEST(Schema, RefusesUnsupportedConversations) {
  for (const char* body :
       {"{}", "[]", "7", R"({"messages":[]})", R"({"messages":"hi"})", R"({"messages":[7]})",
        R"({"messages":[{"content":"x"}]})", R"({"messages":[{"role":"user","content":7}]})",
        R"({"messages":[{"role":"user","content":[{"text":"x"}]}]})",
        R"({"messages":[{"role":"user","content":"x"}],"tools":{}})",
        R"({"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":[]})",
        R"({"messages":[{"role":"user","content":"x"}],"chat_template":"{{x}}"})"}) {
    EXPECT_FALSE(Chat(body)) << body;
  }
  auto image = Chat(R"({"messages":[{"role":"user","content":[
      {"type":"text","text":"what is this"},{"type":"image_url","image_url":{"url":"http://x"}}]}]})");
  ASSERT_FALSE(image);
  EXPECT_EQ(image.error().param, "messages[0].content");
  EXPECT_THAT(image.error().message, HasSubstr("image_url"));
}

}  // namespace
}  // namespace pinion
