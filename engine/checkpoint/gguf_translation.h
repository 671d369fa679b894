#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/base/strings.h"
#include "engine/spec/field_names.h"

namespace pinion {

// A config.json in the making: metadata under the architecture's prefix, copied to its keys.
class GgufTranslation {
 public:
  GgufTranslation(const Json& metadata, std::string architecture)
      : metadata_(metadata), architecture_(std::move(architecture)) {}

  // The metadata 'ARCHITECTURE.key'; null if the file lacks it.
  const Json* Find(std::string_view key) const {
    return metadata_.Find(StrCat(architecture_, ".", key));
  }
  Status Copy(std::string_view from, std::string_view to, bool required) {
    const Json* value = Find(from);
    if (value) {
      Set(to, *value, from);
    } else if (required) {
      return Fail(ErrorCode::kCorrupt, StrCat("'", architecture_, ".", from, "' is missing"));
    }
    return {};
  }
  void Set(std::string_view key, Json value) { config_.Set(key, std::move(value)); }
  // Sets what the metadata 'ARCHITECTURE.from' states, under which errors name it.
  void Set(std::string_view key, Json value, std::string_view from) {
    names_.insert_or_assign(std::string(key), StrCat(architecture_, ".", from));
    Set(key, std::move(value));
  }
  // The value set for the key, if it is a whole number; else 0.
  int64_t Whole(std::string_view key) const {
    const Json* value = config_.Find(key);
    return value && value->is_int() ? value->integer() : 0;
  }
  // Metadata that must be a whole number if it is there.
  Result<int64_t> WholeOr(std::string_view key, int64_t fallback) const {
    const Json* value = Find(key);
    if (!value) return fallback;
    if (!value->is_int() || value->integer() < 0)
      return Fail(ErrorCode::kCorrupt,
                  StrCat("'", key, "' is ", value->Dump().substr(0, 60), ", want a whole number"));
    return value->integer();
  }
  Json Take() { return std::move(config_); }
  const FieldNames& names() const { return names_; }

 private:
  const Json& metadata_;
  std::string architecture_;
  Json config_ = Json::MakeObject();
  FieldNames names_;
};

}  // namespace pinion
