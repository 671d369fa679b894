#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace pinion {

// The limit to how much a part of a tokenizer may enlarge its input. Tokenizer files are untrusted,
// and a chain of steps that each double a text would fill any memory: 40 of them turn a byte into a
// terabyte. Honest ones need this much: NFKC turns U+FDFA (3 bytes) into 33, from which ByteLevel
// makes 63.
class Growth {
 public:
  static constexpr size_t kMostTimes = 32, kFree = 4096;

  // role: "normalizer"; unit: what the sizes count, "bytes".
  Growth(std::string_view role, std::string_view unit, size_t begun_with)
      : role_(role), unit_(unit), begun_with_(begun_with) {}

  // An error if `size` is beyond the limit; ask before something large is made.
  Status Allow(size_t size) const;

 private:
  std::string_view role_, unit_;
  size_t begun_with_;
};

// The steps of one part of a tokenizer, one after the other, under one limit.
template <typename T>
struct Steps {
  // Changes the value; one that may multiply it asks the limit first.
  using Step = std::function<Status(T&, const Growth&)>;

  std::string_view role, unit;
  size_t (*size)(const T&);
  std::vector<Step> steps;

  Status operator()(T& value) const {
    const Growth growth(role, unit, size(value));
    for (const Step& step : steps) {
      PINION_TRY(step(value, growth));
      PINION_TRY(growth.Allow(size(value)));
    }
    return {};
  }
};

}  // namespace pinion
