#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace pinion {

// The arguments, as `<<` prints them, in one string.
template <typename... Args>
std::string StrCat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

// Parts between `separator`; "" gives one empty part.
std::vector<std::string> Split(std::string_view text, char separator);
std::string Join(const std::vector<std::string>& parts, std::string_view separator);
std::string_view Trim(std::string_view text);

// A whole decimal number and nothing else; the error names `what` and the text.
Result<int64_t> ParseInt(std::string_view text, std::string_view what);
Result<double> ParseDouble(std::string_view text, std::string_view what);

// "4", "4GiB", "512 MiB", "1.5g" -> bytes; a bare number is in `unit_bytes` (GiB for KV space).
// Units K M G T, with or without i and B, in any case, are powers of 1024.
Result<uint64_t> ParseBytes(std::string_view text, uint64_t unit_bytes, std::string_view what);

// "10m", "90s", "1h", "250ms", bare numbers are seconds -> seconds, at most a year.
Result<double> ParseDuration(std::string_view text, std::string_view what);

// "0-3,8,20-24:2" <-> {0,1,2,3,8,20,22,24}. Order and repetition are kept both ways.
Result<std::vector<int>> ParseCpuList(std::string_view text);
std::string FormatCpuList(const std::vector<int>& cpus);

// 1536 MiB -> "1.5 GiB".
std::string FormatBytes(uint64_t bytes);

}  // namespace pinion
