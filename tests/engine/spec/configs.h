#pragma once

#include <string>
#include <string_view>

#include "engine/base/json.h"
#include "engine/base/strings.h"
#include "engine/spec/spec.h"
#include "tests/test_data.h"

// The fixtures' configs, as they are and with a field changed.

namespace pinion {

inline Json Config(const std::string& model) {
  return Json::ParseFile(StrCat(tests::TestData(), "/models/", model, "/config.json")).value();
}

inline DecoderSpec SpecOf(const std::string& model) { return ReadSpec(Config(model)).value(); }

// The config of `model` with one field set to a JSON text.
inline Json With(const std::string& model, std::string_view key, std::string_view value) {
  Json config = Config(model);
  config.Set(key, Json::Parse(value).value());
  return config;
}

inline std::string ErrorOf(const Json& config) {
  const auto spec = ReadSpec(config);
  return spec ? "no error" : spec.error().message;
}

}  // namespace pinion
