#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// Numbers in sentences for people.

namespace pinion {

// "1 layer", "2 layers", "2,048 tokens".
std::string Counted(size_t count, std::string_view noun);
// The digits of an integer, which may have a sign, in groups of three: "-1234567" -> "-1,234,567".
std::string Grouped(std::string digits);
// 131072 -> "131,072".
std::string Grouped(uint64_t number);

}  // namespace pinion
