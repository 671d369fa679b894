// The output of `pinion doctor`: a line per check, with the command that fixes it below.

#include <algorithm>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/doctor/apply.h"
#include "harness/doctor/checks.h"

namespace pinion::harness {
namespace {

size_t CountWarnings(const std::vector<Check>& checks) {
  return static_cast<size_t>(std::count_if(checks.begin(), checks.end(), [](const Check& check) {
    return check.state == Check::State::kWarn;
  }));
}

std::string Padded(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string Mark(Check::State state, bool colour) {
  const char* text = state == Check::State::kOk     ? "ok"
                     : state == Check::State::kWarn ? "WARN"
                                                    : "-";
  std::string padded = Padded(text, 5);
  if (!colour || state == Check::State::kNotAvailable) return padded;
  return StrCat(state == Check::State::kOk ? "\033[32m" : "\033[33m", padded, "\033[0m");
}

}  // namespace

Json ToJson(const std::vector<Check>& checks) {
  Json list = Json::MakeArray();
  for (const Check& check : checks) {
    list.Append(Json::Object{{"name", check.name},
                             {"state", Name(check.state)},
                             {"found", check.found},
                             {"reason", check.reason},
                             {"fix", check.fix},
                             {"applies", *ToJson(check.changes).Find("changes")}});
  }
  return Json::Object{{"checks", std::move(list)},
                      {"warnings", static_cast<int64_t>(CountWarnings(checks))}};
}

std::string Render(const std::vector<Check>& checks, bool colour) {
  constexpr size_t kNameWidth = 16;
  std::string text;
  for (const Check& check : checks) {
    text += Mark(check.state, colour) + Padded(check.name, kNameWidth);
    if (check.state == Check::State::kNotAvailable) {
      text += "not available, because " + check.reason + "\n";
    } else {
      text += StrCat(check.found, ": ", check.reason, "\n");
    }
    if (!check.fix.empty())
      text += std::string(5 + kNameWidth, ' ') +
              StrCat("-> ", check.fix,
                     check.changes.empty() ? "" : "   (or --apply " + check.name + ")", "\n");
  }
  const size_t warnings = CountWarnings(checks);
  return StrCat(text, "\n", warnings == 0 ? "nothing to fix" : Counted(warnings, "warning"), "\n");
}

}  // namespace pinion::harness
