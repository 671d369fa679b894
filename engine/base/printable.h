#pragma once

#include <string>
#include <string_view>

namespace pinion {

// Text of a stranger as a line on a terminal may show it: control characters (C0, DEL, C1) but
// those of `kept` become '?'. Other UTF-8 stays as it is.
std::string Printable(std::string_view text, std::string_view kept = "");

}  // namespace pinion
