#pragma once

#include <cstdio>
#include <string>

// Numbers in tables, for everything that prints some.

namespace pinion::harness {

// One number by a printf format, at most 63 characters.
inline std::string Printf(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// 0.125 -> "12.5 %".
inline std::string Percent(double fraction) { return Printf("%.1f %%", fraction * 100); }

// Filled up with blanks to `width` bytes, the text at the left or at the right; never cut.
inline std::string Left(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}
inline std::string Right(std::string text, size_t width) {
  if (text.size() < width) text.insert(0, width - text.size(), ' ');
  return text;
}

}  // namespace pinion::harness
