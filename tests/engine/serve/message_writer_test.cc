#include "engine/serve/message_writer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/strings.h"

namespace pinion {
namespace {

ChoicePart Part(std::string text, std::string reasoning = "", std::vector<ToolCall> calls = {}) {
  ChoicePart part;
  part.text = std::move(text);
  part.reasoning = std::move(reasoning);
  part.calls = std::move(calls);
  return part;
}

ChoicePart Ended(ChoicePart part, const char* reason, Json stop = {}) {
  part.finish_reason = reason;
  part.stop_reason = std::move(stop);
  return part;
}

// The types of some events, with what each carries.
std::vector<std::string> Told(std::string_view events) {
  std::vector<std::string> told;
  while (!events.empty()) {
    const size_t end = events.find("\n\n"), data = events.find("\ndata: ");
    const std::string type(events.substr(7, data - 7));
    const Json json = *Json::Parse(events.substr(data + 7, end - data - 7));
    EXPECT_EQ(json.Find("type")->string(), type);
    const Json* index = json.Find("index");
    const Json* body = json.Find("delta");
    if (!body) body = json.Find("content_block");
    told.push_back(StrCat(type, index ? " " + index->Dump() : "", body ? " " + body->Dump() : ""));
    events.remove_prefix(end + 2);
  }
  return told;
}

using Events = std::vector<std::string>;

TEST(MessageWriter, GivesEveryBlockItsStartAndStop) {
  MessageWriter writer({"msg_1", 1, "m", true});
  EXPECT_EQ(Told(writer.Begin(0, {}, {7, 0, 0})), Events{"message_start"});
  EXPECT_EQ(Told(writer.Part(Part("", "hm"), {})),
            (Events{R"(content_block_start 0 {"type":"thinking","thinking":"","signature":""})",
                    R"(content_block_delta 0 {"type":"thinking_delta","thinking":"hm"})"}));
  EXPECT_EQ(writer.Part(Part(""), {}), "") << "a token whose text is held back";
  EXPECT_EQ(Told(writer.Part(Part("Hi"), {})),
            (Events{"content_block_stop 0", R"(content_block_start 1 {"type":"text","text":""})",
                    R"(content_block_delta 1 {"type":"text_delta","text":"Hi"})"}));
  EXPECT_EQ(Told(writer.Part(Part("!"), {})),
            Events{R"(content_block_delta 1 {"type":"text_delta","text":"!"})"});
  const std::string id = CallId("msg_1", 0, 0);
  EXPECT_EQ(
      Told(writer.Part(Ended(Part("", "", {{"f", R"({"a":1})"}}), "tool_calls"), {})),
      (Events{"content_block_stop 1",
              StrCat(R"(content_block_start 2 {"type":"tool_use","id":")", id,
                     R"(","name":"f","input":{}})"),
              R"(content_block_delta 2 {"type":"input_json_delta","partial_json":"{\"a\":1}"})",
              "content_block_stop 2"}));
  EXPECT_EQ(
      Told(writer.End({7, 3, 4})),
      (Events{R"(message_delta {"stop_reason":"tool_use","stop_sequence":null})", "message_stop"}));
}

TEST(MessageWriter, StreamsTheInputOfACallBeforeTheNextBlock) {
  MessageWriter writer({"msg_1", 1, "m", true});
  EXPECT_EQ(Told(writer.Part(Part("", "", {{"f", ""}}), {})),
            Events{StrCat(R"(content_block_start 0 {"type":"tool_use","id":")",
                          CallId("msg_1", 0, 0), R"(","name":"f","input":{}})")});
  EXPECT_EQ(Told(writer.Part(Part("", "", {{"", "{"}}), {})),
            Events{R"(content_block_delta 0 {"type":"input_json_delta","partial_json":"{"})"});
  EXPECT_EQ(writer.Part(Part(""), {}), "");
  EXPECT_EQ(Told(writer.Part(Part("So", "", {{"", "}"}}), {})),
            (Events{R"(content_block_delta 0 {"type":"input_json_delta","partial_json":"}"})",
                    "content_block_stop 0", R"(content_block_start 1 {"type":"text","text":""})",
                    R"(content_block_delta 1 {"type":"text_delta","text":"So"})"}));
}

TEST(MessageWriter, ClosesTheBlockThatTheEndFindsOpen) {
  MessageWriter writer({"msg_1", 1, "m", true});
  EXPECT_EQ(Told(writer.Part(Ended(Part("x"), "length"), {})).back(), "content_block_stop 0");
  EXPECT_EQ(Told(writer.End({})).front(),
            R"(message_delta {"stop_reason":"max_tokens","stop_sequence":null})");
}

TEST(MessageWriter, WritesTheWholeMessage) {
  const MessageWriter writer({"msg_1", 1, "m", true});
  EXPECT_EQ(
      writer.Whole({Ended(Part("Hi", "hm", {{"f", R"({"a":1})"}}), "tool_calls")}, {7, 3, 4}),
      StrCat(R"({"id":"msg_1","type":"message","role":"assistant","model":"m","content":[)",
             R"({"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"Hi"},)",
             R"({"type":"tool_use","id":")", CallId("msg_1", 0, 0),
             R"(","name":"f","input":{"a":1}}],"stop_reason":"tool_use","stop_sequence":null,)",
             R"("usage":{"input_tokens":3,"cache_creation_input_tokens":0,)",
             R"("cache_read_input_tokens":4,"output_tokens":3}})"));
}

TEST(MessageWriter, ShowsArgumentsThatAreNotAnObjectAsTheyAre) {
  const MessageWriter writer({"msg_1", 1, "m", true});
  const auto input = [&](const std::string& arguments, const char* finish) {
    const Json whole =
        *Json::Parse(writer.Whole({Ended(Part("", "", {{"f", arguments}}), finish)}, {}));
    return StrCat(whole.Find("content")->array()[0].Find("input")->Dump(), " ",
                  whole.Find("stop_reason")->string());
  };
  EXPECT_EQ(input("{}", "length"), "{} max_tokens") << "this call is whole";
  EXPECT_EQ(input(R"({"a": 1, "b": "x)", "length"),
            R"({"INVALID_JSON":"{\"a\": 1, \"b\": \"x"} max_tokens)");
  EXPECT_EQ(input("", "length"), R"({"INVALID_JSON":""} max_tokens)");
  EXPECT_EQ(input("{a: 1}", "tool_calls"), R"({"INVALID_JSON":"{a: 1}"} tool_use)");
  EXPECT_EQ(input("[1]", "tool_calls"), R"({"INVALID_JSON":"[1]"} tool_use)");
}

TEST(MessageWriter, TellsWhyAnAnswerEnded) {
  const MessageWriter writer({"msg_1", 1, "m", true});
  const auto reason = [&](const char* finish, Json stop) {
    const Json whole = *Json::Parse(writer.Whole({Ended(Part("x"), finish, std::move(stop))}, {}));
    return whole.Find("stop_reason")->Dump() + whole.Find("stop_sequence")->Dump();
  };
  EXPECT_EQ(reason("stop", {}), R"("end_turn"null)");
  EXPECT_EQ(reason("stop", Json(5)), R"("end_turn"null)") << "a stop token's id";
  EXPECT_EQ(reason("stop", Json("END")), R"("stop_sequence""END")");
  EXPECT_EQ(reason("length", {}), R"("max_tokens"null)");
  EXPECT_EQ(reason("tool_calls", Json("END")), R"("tool_use"null)");
}

TEST(MessageWriter, NamesErrorsAsAnthropicDoes) {
  const auto type = [](int status) {
    return MessagesError({status, "why", "", ""}).Find("error")->Find("type")->string();
  };
  EXPECT_EQ(MessagesError({400, "why", "n", ""}).Dump(),
            R"({"type":"error","error":{"type":"invalid_request_error","message":"why"}})");
  EXPECT_EQ(type(401), "authentication_error");
  EXPECT_EQ(type(404), "not_found_error");
  EXPECT_EQ(type(413), "request_too_large");
  EXPECT_EQ(type(500), "api_error");
  EXPECT_EQ(type(503), "overloaded_error");
  MessageWriter writer({"msg_1", 1, "m", true});
  EXPECT_EQ(writer.Fail({503, "why", "", ""}),
            "event: error\ndata: " + MessagesError({503, "why", "", ""}).Dump() + "\n\n");
}

}  // namespace
}  // namespace pinion
