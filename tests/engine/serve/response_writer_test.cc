#include "engine/serve/response_writer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/strings.h"

namespace pinion {
namespace responses_tests {  // not those of Messages, whose helpers have the same names
namespace {

ChoicePart Part(std::string text, std::string reasoning = "", std::vector<ToolCall> calls = {}) {
  ChoicePart part;
  part.text = std::move(text);
  part.reasoning = std::move(reasoning);
  part.calls = std::move(calls);
  return part;
}

ChoicePart Ended(ChoicePart part, const char* reason) {
  part.finish_reason = reason;
  return part;
}

ResponseWriter StartedWriter() {
  GenerationRequest request;
  request.shown = R"("instructions":"Be.")";
  return {request, {"resp_7", 1, "m", true}};
}

std::vector<Json> ReadResponse(std::string_view events) {
  std::vector<Json> read;
  while (!events.empty()) {
    const size_t end = events.find("\n\n"), data = events.find("\ndata: ");
    read.push_back(*Json::Parse(events.substr(data + 7, end - data - 7)));
    EXPECT_EQ(read.back().Find("type")->string(), events.substr(7, data - 7));
    events.remove_prefix(end + 2);
  }
  return read;
}

// Type, item and what each event carries.
std::vector<std::string> ToldByResponse(std::string_view events) {
  std::vector<std::string> told;
  for (const Json& event : ReadResponse(events)) {
    std::string line = event.Find("type")->string().substr(9);
    for (const char* key : {"output_index", "item_id", "delta", "text", "arguments"})
      if (const Json* value = event.Find(key)) line += " " + value->Dump();
    if (const Json* item = event.Find("item")) line += " " + item->Find("status")->string();
    told.push_back(line);
  }
  return told;
}

using Lines = std::vector<std::string>;

TEST(ResponseWriter, GivesEveryItemItsStartAndEnd) {
  ResponseWriter writer = StartedWriter();
  EXPECT_EQ(ToldByResponse(writer.Begin(0, {}, {7, 0, 0})), (Lines{"created", "in_progress"}));
  EXPECT_EQ(ToldByResponse(writer.Part(Part("", "hm"), {})),
            (Lines{"output_item.added 0 in_progress", R"(content_part.added 0 "rs_7_0")",
                   R"(reasoning_text.delta 0 "rs_7_0" "hm")"}));
  EXPECT_EQ(writer.Part(Part(""), {}), "") << "a token whose text is held back";
  EXPECT_EQ(ToldByResponse(writer.Part(Part("Hi"), {})),
            (Lines{R"(reasoning_text.done 0 "rs_7_0" "hm")", R"(content_part.done 0 "rs_7_0")",
                   "output_item.done 0 completed", "output_item.added 1 in_progress",
                   R"(content_part.added 1 "msg_7_1")", R"(output_text.delta 1 "msg_7_1" "Hi")"}));
  EXPECT_EQ(ToldByResponse(writer.Part(Part("!"), {})),
            Lines{R"(output_text.delta 1 "msg_7_1" "!")"});
  EXPECT_EQ(
      ToldByResponse(writer.Part(Ended(Part("", "", {{"f", "{}"}}), "tool_calls"), {})),
      (Lines{R"(output_text.done 1 "msg_7_1" "Hi!")", R"(content_part.done 1 "msg_7_1")",
             "output_item.done 1 completed", "output_item.added 2 in_progress",
             R"(function_call_arguments.delta 2 "fc_7_2" "{}")",
             R"(function_call_arguments.done 2 "fc_7_2" "{}")", "output_item.done 2 completed"}));
  EXPECT_EQ(ToldByResponse(writer.End({7, 3, 4})), Lines{"completed"});
}

TEST(ResponseWriter, StreamsArgumentsBeforeTheNextItem) {
  ResponseWriter writer = StartedWriter();
  EXPECT_EQ(ToldByResponse(writer.Part(Part("", "", {{"f", ""}}), {})),
            Lines{"output_item.added 0 in_progress"});
  EXPECT_EQ(ToldByResponse(writer.Part(Part("", "", {{"", "{"}}), {})),
            Lines{R"(function_call_arguments.delta 0 "fc_7_0" "{")"});
  EXPECT_EQ(writer.Part(Part(""), {}), "");
  EXPECT_EQ(ToldByResponse(writer.Part(Part("", "", {{"", "}"}, {"g", "{"}}), {})),
            (Lines{R"(function_call_arguments.delta 0 "fc_7_0" "}")",
                   R"(function_call_arguments.done 0 "fc_7_0" "{}")",
                   "output_item.done 0 completed", "output_item.added 1 in_progress",
                   R"(function_call_arguments.delta 1 "fc_7_1" "{")"}));
  EXPECT_EQ(
      ToldByResponse(writer.Part(Ended(Part(""), "length"), {})),
      (Lines{R"(function_call_arguments.done 1 "fc_7_1" "{")", "output_item.done 1 incomplete"}));
  const Json last = *ReadResponse(writer.End({})).back().Find("response");
  const ChoicePart whole = Ended(Part("", "", {{"f", "{}"}, {"g", "{"}}), "length");
  EXPECT_EQ(last.Find("output")->Dump(),
            Json::Parse(StartedWriter().Whole({whole}, {}))->Find("output")->Dump());
}

TEST(ResponseWriter, NumbersAllEventsOfAStream) {
  ResponseWriter writer = StartedWriter();
  int64_t next = 0;
  const auto follows = [&](std::string_view events) {
    for (const Json& event : ReadResponse(events))
      EXPECT_EQ(event.Find("sequence_number")->integer(), next++);
  };
  follows(writer.Begin(0, {}, {}));
  follows(writer.Part(Part("Hi"), {}));
  follows(writer.Part(Ended(Part("", "", {{"f", "{}"}}), "tool_calls"), {}));
  follows(writer.End({}));
  EXPECT_EQ(next, 2 + 3 + 3 + 4 + 1);
}

TEST(ResponseWriter, EndsAStreamWithTheWholeResponse) {
  const ChoicePart part = Ended(Part("Hi", "hm", {{"f", R"({"a":1})"}}), "tool_calls");
  const Json whole = *Json::Parse(StartedWriter().Whole({part}, {7, 3, 4, 2}));
  ResponseWriter writer = StartedWriter();
  writer.Begin(0, {}, {});
  writer.Part(part, {});
  const Json last = *ReadResponse(writer.End({7, 3, 4, 2})).back().Find("response");
  for (const char* key : {"id", "status", "output", "usage", "instructions", "model"})
    EXPECT_EQ(last.Find(key)->Dump(), whole.Find(key)->Dump()) << key;
  EXPECT_EQ(
      whole.Find("usage")->Dump(),
      R"({"input_tokens":7,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},)"
      R"("output_tokens":3,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":10})");
  EXPECT_EQ(whole.Find("output")->array()[2].Dump(),
            StrCat(R"({"id":"fc_7_2","type":"function_call","status":"completed","call_id":")",
                   CallId("resp_7", 0, 0), R"(","name":"f","arguments":"{\"a\":1}"})"));
}

TEST(ResponseWriter, SaysThatAnAnswerWasCut) {
  ResponseWriter writer = StartedWriter();
  EXPECT_EQ(ToldByResponse(writer.Part(Ended(Part("x"), "length"), {})).back(),
            "output_item.done 0 incomplete");
  const Json event = ReadResponse(writer.End({})).back();
  EXPECT_EQ(event.Find("type")->string(), "response.incomplete");
  EXPECT_EQ(event.Find("response")->Find("incomplete_details")->Dump(),
            R"({"reason":"max_output_tokens"})");
  const Json whole = *Json::Parse(StartedWriter().Whole({Ended(Part("", "hm"), "length")}, {}));
  EXPECT_EQ(whole.Find("output")->array().size(), 1u) << "there was no text yet";
  EXPECT_EQ(whole.Find("output")->array()[0].Find("status")->string(), "incomplete");
}

TEST(ResponseWriter, HasAMessageForAnAnswerWithoutWords) {
  const Json whole = *Json::Parse(StartedWriter().Whole({Ended(Part(""), "stop")}, {}));
  ResponseWriter writer = StartedWriter();
  writer.Part(Ended(Part(""), "stop"), {});
  const Json last = *ReadResponse(writer.End({})).back().Find("response");
  EXPECT_EQ(whole.Find("output")->array().size(), 1u);
  EXPECT_EQ(last.Find("output")->Dump(), whole.Find("output")->Dump());
}

TEST(ResponseWriter, EndsAStreamThatFailsWithItsReason) {
  ResponseWriter writer = StartedWriter();
  writer.Begin(0, {}, {});
  writer.Part(Part("Hi"), {});
  const std::vector<Json> events = ReadResponse(writer.Fail({503, "why", "", ""}));
  EXPECT_EQ(events.back().Find("type")->string(), "response.failed");
  const Json& response = *events.back().Find("response");
  EXPECT_EQ(response.Find("error")->Dump(), R"({"code":"server_error","message":"why"})");
  EXPECT_EQ(response.Find("output")->array()[0].Find("status")->string(), "incomplete");
}

TEST(ResponseWriter, SendsEveryLogprobOnce) {
  const auto rated = [](const char* text, const char* token, const char* reasoning = "") {
    ChoicePart part = Part(text, reasoning);
    part.logprobs = *Json::Parse(StrCat(R"({"content":[{"token":")", token, R"("}]})"));
    return part;
  };
  ResponseWriter writer = StartedWriter();
  writer.Part(rated("", "t", "hm"), {});
  writer.Part(rated("", "a"), {});
  const auto delta = ReadResponse(writer.Part(rated("ab", "b"), {})).back();
  EXPECT_EQ(delta.Find("logprobs")->Dump(), R"([{"token":"a"},{"token":"b"}])");
  EXPECT_EQ(ReadResponse(writer.Part(rated("c", "c"), {})).back().Find("logprobs")->Dump(),
            R"([{"token":"c"}])");
  writer.Part(Ended(Part(""), "stop"), {});
  const Json last = *ReadResponse(writer.End({})).back().Find("response");
  EXPECT_EQ(last.Find("output")->array()[1].Find("content")->array()[0].Find("logprobs")->Dump(),
            R"([{"token":"a"},{"token":"b"},{"token":"c"}])");
}

}  // namespace
}  // namespace responses_tests
}  // namespace pinion
