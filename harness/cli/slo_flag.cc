#include "harness/cli/slo_flag.h"

#include "engine/base/strings.h"

namespace pinion::harness {

Result<Json> ReadSloFlag(const std::vector<std::string>& texts) {
  Json slo = Json::MakeObject();
  for (const std::string& text : texts) {
    const std::vector<std::string> parts = Split(text, '=');
    if (parts.size() != 2)
      return Fail(
          ErrorCode::kUsage,
          StrCat("--slo '", text, "' must have the form ttft=500ms, tpot=100ms or e2el=5s"));
    if (slo.Find(parts[0]))
      return Fail(ErrorCode::kUsage, StrCat("--slo names ", parts[0], " twice"));
    const auto number = Json::Parse(parts[1]);
    slo.Set(parts[0], number ? *number : Json(parts[1]));
  }
  return slo;
}

}  // namespace pinion::harness
