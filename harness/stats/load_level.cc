#include "harness/stats/load_level.h"

#include <charconv>

#include "engine/base/strings.h"
#include "engine/base/words.h"

namespace pinion::harness {
namespace {

// The shortest text that is read as the same rate.
std::string RateText(double rate) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, rate).ptr};
}

}  // namespace

std::string LevelText(LoadLevel level) {
  if (level.is_open()) return RateText(level.rate) + " requests/s";
  if (level.clients == 0) return "";
  return Counted(static_cast<size_t>(level.clients), "client");
}

std::string LevelKey(LoadLevel level) {
  return level.is_open() ? RateText(level.rate) + "rps" : StrCat(level.clients);
}

Result<LoadLevel> ParseLoadLevel(const std::string& text) {
  constexpr std::string_view kPerSecond = "rps";
  if (text.ends_with(kPerSecond)) {
    const auto rate = ParseDouble(text.substr(0, text.size() - kPerSecond.size()), "requests/s");
    if (rate && *rate >= kLeastRate && *rate <= kMaxRate) return LoadLevel::AtRate(*rate);
  } else if (const auto clients = ParseInt(text, "clients");
             clients && *clients >= 1 && *clients <= kMaxClients) {
    return LoadLevel(static_cast<int>(*clients));
  }
  return Fail(ErrorCode::kUsage,
              StrCat("'", text, "' is not a load; give a number of clients from 1 to ", kMaxClients,
                     ", such as 8, or requests per second from ", kLeastRate, " to ", kMaxRate,
                     ", such as 2.5rps"));
}

void SetLevel(LoadLevel level, Json& object) {
  object.Set("concurrency", level.clients);
  if (level.is_open()) object.Set("rate", level.rate);
}

Result<LoadLevel> LevelOf(const Json& object) {
  PINION_ASSIGN(LoadLevel level, Require<int>(object, "concurrency"));
  PINION_ASSIGN(level.rate, Optional<double>(object, "rate", 0));
  return level;
}

}  // namespace pinion::harness
