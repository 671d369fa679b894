#include "engine/serve/json_call.h"

#include <gtest/gtest.h>

#include <string>

namespace pinion {
namespace {

using State = CallHead::State;

TEST(CallHead, IsFoundUpToTheBraceOfTheArguments) {
  const std::string text = R"( { "name" : "a\"b" , "arguments":  {"x)";
  for (size_t bytes = 0; bytes < text.size() - 2; ++bytes)
    EXPECT_EQ(ReadCallHead(text.substr(0, bytes)).state, State::kMore) << bytes;
  const CallHead head = ReadCallHead(text);
  EXPECT_EQ(head.state, State::kFound);
  EXPECT_EQ(head.name, "a\"b");
  EXPECT_EQ(text.substr(head.bytes), "{\"x");
  EXPECT_EQ(ReadCallHead(R"({"name":"f","parameters":{)").state, State::kFound);
  EXPECT_EQ(ReadCallHead(R"({"name": "f", "ar)").name, "f") << "known before the head has ended";
}

TEST(CallHead, IsNotFoundInAnotherShape) {
  for (const char* text :
       {"[", R"({"id")", R"({"name": 3)", R"({"name": "")", R"({"name": "f"})",
        R"({"name": "f", "id")", R"({"name": "f", "arguments": [)", R"({"name": "\x")"})
    EXPECT_EQ(ReadCallHead(text).state, State::kNone) << text;
}

TEST(NamedHead, IsANameUpToTheBrace) {
  for (const char* text : {" f-1.g{", "f-1.g [ARGS]{\"", "f-1.g[CALL_ID]abc[ARGS] {"}) {
    const CallHead head = ReadNamedHead(text);
    EXPECT_EQ(head.state, State::kFound) << text;
    EXPECT_EQ(head.name, "f-1.g");
    EXPECT_EQ(text[head.bytes], '{');
  }
  EXPECT_EQ(ReadNamedHead("f[ARGS]").state, State::kMore);
  EXPECT_EQ(ReadNamedHead("so f{").state, State::kNone);
  EXPECT_EQ(ReadNamedHead("{").state, State::kNone);
  EXPECT_EQ(ReadNamedHead(std::string(kMaxCallHead, 'f')).state, State::kNone);
}

TEST(CallHead, IsNotFoundIfItIsLong) {
  const std::string text = R"({"name": ")" + std::string(kMaxCallHead, 'x');
  EXPECT_EQ(ReadCallHead(text.substr(0, kMaxCallHead - 1)).state, State::kMore);
  EXPECT_EQ(ReadCallHead(text.substr(0, kMaxCallHead)).state, State::kNone);
  EXPECT_EQ(ReadCallHead(text + R"(", "arguments": {)").state, State::kNone);
}

TEST(JsonEnd, IsTheBracketThatClosesTheFirst) {
  const std::string value = R"({"a\"}": [{"\\": "]}"}, {}]})";
  for (size_t cut = 0; cut <= value.size(); ++cut) {
    JsonEnd end;
    EXPECT_EQ(end.Take(value.substr(0, cut)), cut);
    EXPECT_EQ(end.done(), cut == value.size());
    EXPECT_EQ(end.Take(value.substr(cut) + "} "), value.size() - cut);
    EXPECT_TRUE(end.done());
  }
  EXPECT_EQ(JsonEnd(1).Take(R"(, "b": {}} )"), 10u);
}

TEST(JsonEnd, StopsBeforeAMarkOutsideAString) {
  EXPECT_EQ(JsonEnd().Take(R"({"a</t>": </t>)", "</t>"), 10u);
  EXPECT_EQ(JsonEnd().Take("{ </", "</t>"), 2u) << "what may become one";
  EXPECT_EQ(JsonEnd().Take("{ </x", "</t>"), 5u);
}

}  // namespace
}  // namespace pinion
