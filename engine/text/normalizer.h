#pragma once

#include <memory>
#include <string>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion {

// One step that rewrites text before it is cut into words. Immutable; thread-safe.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // `text` is valid UTF-8, before and after.
  virtual Status Apply(std::string& text) const = 0;
};

// From tokenizer.json's "normalizer". Errors name what is unknown or malformed.
Result<std::unique_ptr<Normalizer>> MakeNormalizer(const Json& component);

}  // namespace pinion
