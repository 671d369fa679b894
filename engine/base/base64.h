#pragma once

#include <string>
#include <string_view>

namespace pinion {

// Appends the base64 text of the bytes. RFC 4648, section 4.
void AppendBase64(std::string& out, std::string_view bytes);

}  // namespace pinion
