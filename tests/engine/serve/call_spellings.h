#pragma once

// Calls as the models write them whose formats mark each parameter, whole and in pieces.

#include <string>

#include "engine/base/json.h"
#include "engine/base/strings.h"

namespace pinion {

// Of which texts are made at random that are calls, nearly calls, or none.
inline const std::string kTagPieces[] = {"<tool_call>",
                                         "</tool_call>",
                                         "<function=weather>",
                                         "<function=unknown>",
                                         "<parameter=city>",
                                         "<parameter=days>",
                                         "</parameter>",
                                         "</function>",
                                         "<",
                                         "</",
                                         ">",
                                         "\n",
                                         "so",
                                         "\"",
                                         "weather",
                                         "<arg_key>city</arg_key>",
                                         "<arg_key>days</arg_key>",
                                         "<arg_value>",
                                         "</arg_value>",
                                         "12"};
inline const std::string kDsmlPieces[] = {"<｜DSML｜function_calls>",
                                          "</｜DSML｜function_calls>",
                                          "<｜DSML｜invoke name=\"weather\">",
                                          "<｜DSML｜invoke name=\"unknown\">",
                                          "</｜DSML｜invoke>",
                                          "<｜DSML｜parameter name=\"a\" string=\"",
                                          "true\">",
                                          "false\">",
                                          "</｜DSML｜parameter>",
                                          "so",
                                          "\n",
                                          "12"};
inline const std::string kPythonPieces[] = {"[",
                                            "]",
                                            "weather(",
                                            "time (",
                                            "unknown(",
                                            ")",
                                            "city=",
                                            "b = ",
                                            "'",
                                            "\"",
                                            "\\",
                                            "\\x4",
                                            "\\u00e9",
                                            ", ",
                                            "12",
                                            "None",
                                            "{'c': [1, '}']}",
                                            "<|python_start|>",
                                            "<|python_end|>",
                                            "so"};
inline const std::string kGemmaPieces[] = {"<|tool_call>",
                                           "<tool_call|>",
                                           "call:weather{",
                                           "call:unknown{",
                                           "city:",
                                           "<|\"|>b<|\"|> :",
                                           "<|\"|>",
                                           "<|",
                                           "[",
                                           "]",
                                           "{",
                                           "}",
                                           ",",
                                           " \n",
                                           "12",
                                           "so"};
inline const std::string kDeepSeekPieces[] = {"<｜tool▁calls▁begin｜>",
                                              "<｜tool▁calls▁end｜>",
                                              "<｜tool▁call▁begin｜>time<｜tool▁sep｜>",
                                              "<｜tool▁call▁begin｜>",
                                              "<｜tool▁call▁end｜>",
                                              "<｜tool▁sep｜>",
                                              "function",
                                              "weather\n```json\n",
                                              "\n```",
                                              "{",
                                              "}",
                                              "\"a\"",
                                              "\"",
                                              ": 1",
                                              "so"};

// How each of the formats whose parameters are marked writes a call of `weather`.
struct Spelling {
  const char* calls;
  std::string (*write)(const Json::Object& arguments);
};

// Whether the argument is a string.
inline bool IsText(const std::string& key) {
  return key != "parts" && key != "days" && key != "exact";
}
inline std::string Plain(const std::string& key, const Json& value) {
  return IsText(key) ? value.string() : value.Dump();
}

inline std::string WriteCoder(const Json::Object& arguments) {
  std::string text = "<tool_call>\n<function=weather>\n";
  for (const auto& [key, value] : arguments)
    text += StrCat("<parameter=", key, ">\n", Plain(key, value), "\n</parameter>\n");
  return text + "</function>\n</tool_call>";
}

inline std::string WriteGlm(const Json::Object& arguments) {
  std::string text = "<tool_call>weather";
  for (const auto& [key, value] : arguments)
    text +=
        StrCat("\n<arg_key>", key, "</arg_key>\n<arg_value>", Plain(key, value), "</arg_value>");
  return text + "\n</tool_call>";
}

inline std::string WriteDsml(const Json::Object& arguments) {
  std::string text = "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n";
  for (const auto& [key, value] : arguments)
    text +=
        StrCat("<｜DSML｜parameter name=\"", key, "\" string=\"", IsText(key) ? "true" : "false",
               "\">", Plain(key, value), "</｜DSML｜parameter>\n");
  return text + "</｜DSML｜invoke>\n</｜DSML｜function_calls>";
}

inline std::string WritePython(const Json::Object& arguments) {
  std::string text = "[weather(";
  for (const auto& [key, value] : arguments) text += StrCat(key, "=", value.Dump(), ", ");
  return text + ")]";
}

inline std::string GemmaValue(const Json& value) {
  if (value.is_string()) return StrCat("<|\"|>", value.string(), "<|\"|>");
  if (!value.is_array()) return value.Dump();
  std::string text;
  for (const Json& item : value.array()) text += StrCat(text.empty() ? "" : ", ", GemmaValue(item));
  return StrCat("[", text, "]");
}

inline std::string WriteGemma(const Json::Object& arguments) {
  std::string text;
  for (const auto& [key, value] : arguments)
    text += StrCat(text.empty() ? "" : ",", key, ":", GemmaValue(value));
  return StrCat("<|tool_call>call:weather{", text, "}<tool_call|>");
}

inline std::string WriteDeepSeek(const Json::Object& arguments) {
  return StrCat("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>",
                Json(arguments).Dump(), "<｜tool▁call▁end｜><｜tool▁calls▁end｜>");
}

inline std::string WriteOldDeepSeek(const Json::Object& arguments) {
  return StrCat(
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n",
      Json(arguments).Dump(), "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>");
}

inline constexpr Spelling kSpellings[] = {{"gemma4", WriteGemma},
                                          {"deepseek_v31", WriteDeepSeek},
                                          {"deepseek_v3", WriteOldDeepSeek},
                                          {"qwen3_coder", WriteCoder},
                                          {"glm47", WriteGlm},
                                          {"deepseek_v32", WriteDsml},
                                          {"pythonic", WritePython}};

}  // namespace pinion
