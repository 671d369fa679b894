#pragma once

#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace pinion {

// The address at which an engine listens for others: "HOST:PORT", "[IPV6]:PORT" or "unix:PATH".
struct Address {
  std::string host, port;  // of TCP; the port is a number
  std::string path;        // of a Unix socket; empty: it is TCP

  bool is_unix() const { return !path.empty(); }
  std::string Text() const;  // as it was given
};

// kUsage; the error begins with `what`, the flag.
Result<Address> ParseAddress(std::string_view text, std::string_view what);

}  // namespace pinion
