#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/load/openai.h"
#include "harness/load/server_url.h"
#include "harness/load/sse.h"

namespace pinion::harness {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ServerUrl, AcceptsCommonForms) {
  const auto text = [](const char* url) { return ParseServerUrl(url)->text; };
  EXPECT_EQ(text("http://127.0.0.1:8000"), "http://127.0.0.1:8000");
  EXPECT_EQ(text("localhost:8000/v1/"), "http://localhost:8000");
  EXPECT_EQ(text("http://host/a/b/v1"), "http://host:80/a/b");
  EXPECT_EQ(text("http://[::1]:9/"), "http://[::1]:9");
  EXPECT_EQ(text("https://host/v1"), "https://host:443");
  EXPECT_EQ(text("ftp.host:80/v12"), "http://ftp.host:80/v12");
  EXPECT_EQ(ServerUrl::OfPort(9).text, text("127.0.0.1:9"));
}

TEST(ServerUrl, TellsServersOfThisMachine) {
  for (const char* url : {"localhost:8000", "http://127.0.0.1", "127.1.2.3:80", "http://[::1]:9"})
    EXPECT_TRUE(ParseServerUrl(url)->is_local) << url;
  for (const char* url : {"http://128.0.0.1", "https://localhost.example", "http://[::2]:9"})
    EXPECT_FALSE(ParseServerUrl(url)->is_local) << url;
  EXPECT_TRUE(ServerUrl::OfPort(9).is_local);
}

TEST(ServerUrl, RefusesWithTheWayOut) {
  for (const char* url : {"http://user:word@host", "http://", "http://host:0", "http://host?a=b",
                          "http://host:99999", "http://host:x", "http://[::1", "a b", "://host"}) {
    const auto read = ParseServerUrl(url);
    ASSERT_FALSE(read) << url;
    EXPECT_EQ(read.error().code, ErrorCode::kUsage);
    EXPECT_THAT(read.error().message, HasSubstr("http://127.0.0.1:8000"));
  }
  EXPECT_THAT(ParseServerUrl("ftp://host").error().message, HasSubstr("'ftp' is not supported"));
}

// However the bytes are cut.
TEST(SseReader, FindsEventsAcrossAnySplit) {
  const std::string stream =
      ": hello\r\ndata: one\r\n\r\nevent: x\ndata:two\ndata: lines\n\n\n\rdata\r\rdata: rest";
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    std::vector<std::string> events;
    SseReader reader([&](std::string_view data) { events.emplace_back(data); });
    for (size_t at = 0; at < stream.size(); at += piece)
      reader.Feed(std::string_view(stream).substr(at, piece));
    EXPECT_THAT(events, ElementsAre("one", "two\nlines", "")) << piece;
  }
}

TEST(SseReader, KeepsNoMoreOfAnEndlessEventThanItsLimit) {
  const std::string piece(1 << 20, 'x');
  for (const char* line_end : {"", "\ndata:"}) {
    size_t events = 0, longest = 0;
    SseReader reader([&](std::string_view data) {
      ++events;
      longest = std::max(longest, data.size());
    });
    reader.Feed("data: ");
    for (int i = 0; i < 40; ++i) {
      reader.Feed(piece);
      reader.Feed(line_end);
    }
    EXPECT_GE(events, 1u);
    EXPECT_LE(longest, SseReader::kMostBytes + 2 * piece.size());
  }
}

TEST(StreamEvent, RoleChunksAndUsageAreNotTokens) {
  const auto chat = [](const char* data) { return *ReadStreamEvent(data, Endpoint::kChat); };
  EXPECT_FALSE(chat(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})").is_token);
  EXPECT_TRUE(chat(R"({"choices":[{"delta":{"content":"a"}}]})").is_token);
  EXPECT_TRUE(chat(R"({"choices":[{"delta":{"reasoning_content":"a"}}]})").is_token);
  EXPECT_FALSE(chat(R"({"choices":[{"delta":{},"finish_reason":"stop"}]})").is_token);
  EXPECT_TRUE(chat("[DONE]").is_end);
  EXPECT_TRUE(chat(R"({"choices":[{"delta":{},"finish_reason":"stop"}]})").is_end);
  EXPECT_FALSE(chat(R"({"choices":[{"delta":{"content":"a"},"finish_reason":null}]})").is_end);
  const StreamEvent usage = chat(
      R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,
          "prompt_tokens_details":{"cached_tokens":4}}})");
  EXPECT_FALSE(usage.is_token);
  EXPECT_EQ(usage.prompt_tokens, 7);
  EXPECT_EQ(usage.output_tokens, 3);
  EXPECT_EQ(usage.cached_tokens, 4);
}

TEST(StreamEvent, WithheldTextIsATokenUnlessTheAnswerEndsThere) {
  const auto event = [](const char* data) {
    return *ReadStreamEvent(data, Endpoint::kCompletions);
  };
  EXPECT_TRUE(event(R"({"choices":[{"text":"","finish_reason":null}]})").is_token);
  EXPECT_FALSE(event(R"({"choices":[{"text":"","finish_reason":"stop"}]})").is_token);
  EXPECT_TRUE(event(R"({"choices":[{"text":"a","finish_reason":"length"}]})").is_token);
}

TEST(StreamEvent, ReportsTheServersError) {
  const auto event = ReadStreamEvent(R"({"error":{"message":"no memory"}})", Endpoint::kChat);
  ASSERT_FALSE(event);
  EXPECT_EQ(event.error().message, "no memory");
  EXPECT_THAT(ReadStreamEvent("<html>", Endpoint::kChat).error().message, HasSubstr("<html>"));
}

TEST(RequestBody, FollowsTheEndpointsFormat) {
  RequestStyle style;
  style.model = "m";
  style.extra_body = *Json::Parse(R"({"temperature":1,"top_k":5})");
  const Exchanges exchanges{"rules", {"question", "answer", "again"}};
  const Json completion = *Json::Parse(RequestBody(style, exchanges, 9));
  EXPECT_EQ(completion.Find("prompt")->string(), "rules\nquestion\nanswer\nagain");
  EXPECT_EQ(completion.Find("max_tokens")->integer(), 9);
  EXPECT_EQ(completion.Find("top_k")->integer(), 5);
  EXPECT_EQ(completion.Find("temperature")->integer(), 1);  // what was given last
  style.endpoint = Endpoint::kChat;
  const Json chat = *Json::Parse(RequestBody(style, exchanges, 9));
  std::vector<std::string> roles;
  for (const Json& message : chat.Find("messages")->array())
    roles.push_back(message.Find("role")->string());
  EXPECT_THAT(roles, ElementsAre("system", "user", "assistant", "user"));
}

}  // namespace
}  // namespace pinion::harness
