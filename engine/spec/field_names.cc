#include "engine/spec/field_names.h"

#include <algorithm>

#include "engine/base/strings.h"

namespace pinion {

std::string WithFileNames(std::string_view message, const FieldNames& names) {
  std::string renamed;
  size_t at = 0;
  while (at < message.size()) {
    const size_t open = message.find('\'', at);
    const size_t close = open == message.npos ? open : message.find('\'', open + 1);
    if (close == message.npos) break;
    const std::string_view field = message.substr(open + 1, close - open - 1);
    const auto found = names.find(field);
    renamed += message.substr(at, open - at);
    // A quote that opens no known field may be the end of another one, or an apostrophe.
    renamed += found == names.end() ? "'" : StrCat("'", found->second, "'");
    at = found == names.end() ? open + 1 : close + 1;
  }
  return renamed.append(message.substr(std::min(at, message.size())));
}

}  // namespace pinion
