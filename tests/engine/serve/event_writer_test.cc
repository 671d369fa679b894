#include "engine/serve/event_writer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace pinion {
namespace {

// The text behind "data: ", parsed; null unless it is written as Dump writes it.
Json PayloadOf(std::string_view event) {
  EXPECT_EQ(event.substr(0, 6), "data: ");
  EXPECT_EQ(event.substr(event.size() - 2), "\n\n");
  event = event.substr(6, event.size() - 8);
  auto json = Json::Parse(event);
  if (!json || json->Dump() != event) return {};
  return *json;
}

const Json& OnlyChoice(const Json& event) { return event.Find("choices")->array().at(0); }

TEST(EventWriter, WritesTheChunksOfBothEndpoints) {
  EventWriter completion({"cmpl-1", 1700000000, "my \"model\"", false});
  EXPECT_EQ(completion.Part({1, "hi\n", {}, "stop", Json(5)}),
            "data: {\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":1700000000,"
            "\"model\":\"my \\\"model\\\"\",\"choices\":[{\"index\":1,\"text\":\"hi\\n\","
            "\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":5}]}\n\n");
  EventWriter chat({"chatcmpl-1", 1700000000, "m", true});
  const std::string head =
      "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
      "\"model\":\"m\",\"choices\":[";
  EXPECT_EQ(chat.Role(2),
            head +
                "{\"index\":2,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                "\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null}]}\n\n");
  EXPECT_EQ(chat.Part({0, "x", Json(Json::Object{{"content", Json::MakeArray()}}), "", {}}),
            head +
                "{\"index\":0,\"delta\":{\"content\":\"x\"},\"logprobs\":{\"content\":[]},"
                "\"finish_reason\":null,\"stop_reason\":null}]}\n\n");
  EXPECT_EQ(chat.UsageOf({7, 2, 4}),
            head +
                "],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,\"total_tokens\":9,"
                "\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n");
}

TEST(EventWriter, BeginsACallWithoutArguments) {
  EventWriter chat({"chatcmpl-1", 1, "m", true});
  const auto deltas = [&](ChoicePart part) {
    std::vector<std::string> told;
    for (std::string_view events = chat.Part(part); !events.empty();) {
      const size_t end = events.find("\n\n") + 2;
      const Json choice = OnlyChoice(PayloadOf(events.substr(0, end)));
      told.push_back(choice.Find("delta")->Dump() + choice.Find("finish_reason")->Dump());
      events.remove_prefix(end);
    }
    return told;
  };
  using Deltas = std::vector<std::string>;
  ChoicePart part;
  part.text = "Hi";
  part.finish_reason = "tool_calls";
  part.first_call = 2;
  part.calls = {{"", "1}"}, {"f", "{"}};
  const std::string head =
      R"({"index":3,"id":")" + CallId("chatcmpl-1", 0, 3) + R"(","type":"function",)";
  EXPECT_EQ(deltas(part), (Deltas{R"({"content":"Hi","tool_calls":[)" + head +
                                      R"("function":{"name":"f","arguments":""}}]}null)",
                                  R"({"tool_calls":[{"index":2,"function":{"arguments":"1}"}},)"
                                  R"({"index":3,"function":{"arguments":"{"}}]}"tool_calls")"}));
  part.text.clear();
  part.calls = {{"", "1"}};
  EXPECT_EQ(deltas(part),
            Deltas{R"({"tool_calls":[{"index":2,"function":{"arguments":"1"}}]}"tool_calls")"});
}

TEST(EventWriter, EqualsTheTreeForAnyText) {
  std::mt19937 random(20261122);
  EventWriter completion({"cmpl-1", 1, "m", false}), chat({"chatcmpl-1", 1, "m", true});
  for (int round = 0; round < 5000; ++round) {
    std::string text(random() % 20, '\0');
    for (char& byte : text) byte = static_cast<char>(random() % 4 ? random() % 128 : random());
    const std::string clean = Json::Parse(Json(text).Dump())->string();
    const Json plain = PayloadOf(completion.Part({0, text, {}, "", {}}));
    ASSERT_FALSE(plain.is_null());
    EXPECT_EQ(OnlyChoice(plain).Find("text")->string(), clean);
    const Json delta = PayloadOf(chat.Part({0, text, {}, "", Json(text)}));
    ASSERT_FALSE(delta.is_null());
    EXPECT_EQ(OnlyChoice(delta).Find("delta")->Find("content")->string(), clean);
    EXPECT_EQ(OnlyChoice(delta).Find("stop_reason")->string(), clean);
  }
}

}  // namespace
}  // namespace pinion
