#pragma once

#include <cstdio>
#include <ctime>
#include <string>

#include "engine/base/strings.h"

// Formatting of numbers, times and columns.

namespace pinion::harness {

// One number by a printf format, at most 63 characters.
inline std::string Printf(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// 0.125 -> "12.5 %".
inline std::string Percent(double fraction) { return Printf("%.1f %%", fraction * 100); }

// 1.041 -> "+4.1 %".
inline std::string Change(double ratio) { return Printf("%+.1f %%", (ratio - 1) * 100); }

// The time in UTC by a strftime format, at most 63 characters.
inline std::string UtcNow(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  char text[64];
  return {text, std::strftime(text, sizeof text, format, &utc)};
}

// Pads with blanks to `width` bytes, with the text at the left or at the right; never cuts.
inline std::string Left(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}
inline std::string Right(std::string text, size_t width) {
  if (text.size() < width) text.insert(0, width - text.size(), ' ');
  return text;
}

}  // namespace pinion::harness
