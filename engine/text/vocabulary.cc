#include "engine/text/vocabulary.h"

#include "engine/base/printable.h"
#include "engine/base/strings.h"

namespace pinion {

Status Vocabulary::Add(std::string_view token, int64_t id) {
  if (id < 0 || id > kMaxId)
    return Fail(ErrorCode::kCorrupt, StrCat("token '", Printable(token.substr(0, 80)), "' has id ",
                                            id, ", want 0 to ", kMaxId));
  if (token.size() > kMaxTokenBytes)
    return Fail(ErrorCode::kCorrupt, StrCat("token ", id, " has ", token.size(),
                                            " bytes, want at most ", kMaxTokenBytes));
  const auto index = static_cast<size_t>(id);
  if (index >= texts_.size()) {
    texts_.resize(index + 1);
    known_.resize(index + 1);
  }
  ids_[std::string(token)] = static_cast<int32_t>(id);
  texts_[index] = token;
  known_[index] = true;
  return {};
}

const std::string& Vocabulary::Text(int32_t id) const {
  static const std::string empty;
  return Has(id) ? texts_[static_cast<size_t>(id)] : empty;
}

}  // namespace pinion
