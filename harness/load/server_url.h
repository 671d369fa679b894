#pragma once

#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace pinion::harness {

// The address of a server.
struct ServerUrl {
  std::string text;       // "https://host:port/prefix", the port always there, no slash at its end
  bool is_local = false;  // its host is "localhost" or a loopback address

  static ServerUrl OfPort(int port);  // http://127.0.0.1:PORT
};

// "http://127.0.0.1:8000", "localhost:8000", "https://host/v1/": without a scheme it is http, and a
// trailing "/v1" is removed, since every path of the API begins with it. Errors (kUsage): another
// scheme, no host, a port out of range, a user's name, a query.
Result<ServerUrl> ParseServerUrl(std::string_view text);

}  // namespace pinion::harness
