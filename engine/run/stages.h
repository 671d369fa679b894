#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/log.h"
#include "engine/base/progress.h"
#include "engine/base/strings.h"

namespace pinion {

// Times the stages of a start and logs each when it ends.
class Stages {
 public:
  void Done(const std::string& stage, const std::string& result) {
    const double seconds = SecondsSince(last_ns_);
    last_ns_ = NowNs();
    progress::Advance();
    LogInfo(StrCat(stage, " (", FormatSeconds(seconds), "): ", result));
    Json entry = Json::MakeObject();
    entry.Set("stage", stage);
    entry.Set("seconds", seconds);
    entries_.Append(std::move(entry));
  }
  double total_s() const { return SecondsSince(start_ns_); }
  const Json& entries() const { return entries_; }

 private:
  static std::string FormatSeconds(double seconds) {
    char text[32];
    std::snprintf(text, sizeof text, seconds < 1 ? "%.3f s" : "%.1f s", seconds);
    return text;
  }
  int64_t start_ns_ = NowNs(), last_ns_ = start_ns_;
  Json entries_ = Json::MakeArray();
};

}  // namespace pinion
