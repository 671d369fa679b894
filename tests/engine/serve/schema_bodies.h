#pragma once

#include <gtest/gtest.h>

#include <string>

#include "engine/serve/fields.h"
#include "engine/serve/schema.h"

// Requests read from the text of their bodies, with fields checked as the front end does.

namespace pinion {

inline ApiDefaults Defaults(const char* generation_config = "{}") {
  auto defaults = ReadApiDefaults(*Json::Parse(generation_config));
  EXPECT_TRUE(defaults);
  return *defaults;
}
inline ApiResult<GenerationRequest> Completion(const std::string& text) {
  const Json body = *Json::Parse(text);
  PINION_TRY(CheckFields(Api::kCompletions, body, {.ignores_unknown = true}));
  return ReadCompletionRequest(body, Defaults());
}
inline ApiResult<GenerationRequest> Chat(const std::string& text) {
  const Json body = *Json::Parse(text);
  PINION_TRY(CheckFields(Api::kChat, body, {.ignores_unknown = true}));
  return ReadChatRequest(body, Defaults());
}

}  // namespace pinion
