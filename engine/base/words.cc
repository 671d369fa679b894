#include "engine/base/words.h"

#include "engine/base/strings.h"

namespace pinion {

std::string Counted(size_t count, std::string_view noun) {
  return StrCat(Grouped(uint64_t{count}), " ", noun, count == 1 ? "" : "s");
}

std::string Grouped(std::string digits) {
  const size_t first = digits.starts_with('-') ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string Grouped(uint64_t number) { return Grouped(StrCat(number)); }

}  // namespace pinion
