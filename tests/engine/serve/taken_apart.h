#pragma once

// Answers taken apart by the parser of a format, in pieces of every size.

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/serve/answer_parser.h"

namespace pinion {

inline Json WeatherTools() {
  return *Json::Parse(
      R"([{"type":"function","function":{"name":"weather","parameters":{"type":"object",)"
      R"("properties":{"city":{"type":"string"},"days":{"type":"integer"},)"
      R"("exact":{"type":"boolean"},"parts":{"type":"array"}}}}},)"
      R"({"type":"function","function":{"name":"time"}}])");
}

inline OutputRules Rules(const std::string& calls, const std::string& thoughts = "none") {
  const OutputFormat format = *ChooseOutputFormat(calls, thoughts, {});
  return {.calls = format.calls,
          .thoughts = format.thoughts,
          .tools = std::make_shared<const KnownTools>(WeatherTools())};
}

// The answer that a client puts together from these pieces.
inline ParsedOutput Parse(const OutputRules& rules, const std::vector<std::string>& pieces) {
  const auto parser = MakeAnswerParser(rules);
  ParsedOutput whole;
  for (size_t i = 0; i < pieces.size(); ++i)
    whole.Append(parser->Push(pieces[i], i + 1 == pieces.size()));
  return whole;
}

inline std::string Show(const ParsedOutput& parsed) {
  std::string text = "content [" + parsed.content + "] reasoning [" + parsed.reasoning + "]";
  for (const ToolCall& call : parsed.calls) text += " " + call.name + call.arguments;
  return text;
}

// The answer's parts, whichever two pieces it comes in, and byte by byte.
inline std::string Parsed(const OutputRules& rules, const std::string& text) {
  std::string shown = Show(Parse(rules, {text}));
  std::vector<std::string> bytes;
  for (size_t cut = 0; cut < text.size(); ++cut) {
    EXPECT_EQ(Show(Parse(rules, {text.substr(0, cut), text.substr(cut)})), shown) << "at " << cut;
    bytes.push_back(text.substr(cut, 1));
  }
  bytes.emplace_back();
  EXPECT_EQ(Show(Parse(rules, bytes)), shown) << "byte by byte";
  return shown;
}

// The parts of calls in each piece.
inline std::vector<std::string> CallsOf(const OutputRules& rules,
                                        const std::vector<std::string>& pieces) {
  const auto parser = MakeAnswerParser(rules);
  std::vector<std::string> given;
  for (const std::string& piece : pieces) {
    given.emplace_back();
    for (const ToolCall& call : parser->Push(piece, false).calls)
      given.back() += call.name + ":" + call.arguments;
  }
  return given;
}

// Texts made of these fragments have the same parts however they are cut.
inline void ExpectNoCutMatters(const char* calls, std::span<const std::string> fragments) {
  std::mt19937 rng(20261126);
  std::uniform_int_distribution<size_t> any(0, fragments.size() - 1), few(1, 7);
  for (int i = 0; i < 200; ++i) {
    std::string text;
    for (size_t left = few(rng); left > 0; --left) text += fragments[any(rng)];
    Parsed(Rules(calls), text);
    if (::testing::Test::HasFailure()) FAIL() << calls << ": " << text;
  }
}

}  // namespace pinion
