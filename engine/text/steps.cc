#include "engine/text/steps.h"

#include "engine/base/strings.h"

namespace pinion {

Status Growth::Allow(size_t size) const {
  if (size <= kMostTimes * begun_with_ + kFree) return {};
  return Fail(ErrorCode::kCorrupt,
              StrCat("the ", role_, " would make ", size, " ", unit_, " of ", begun_with_,
                     ", more than ", kMostTimes, " times as many and ", kFree,
                     ": the tokenizer is broken, take the one that the model was published with"));
}

}  // namespace pinion
