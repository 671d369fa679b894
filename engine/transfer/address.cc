#include "engine/transfer/address.h"

#include <sys/un.h>

#include <charconv>

#include "engine/base/strings.h"

namespace pinion {
namespace {

constexpr std::string_view kUnix = "unix:";

bool IsPort(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= 0 && port <= 65535;
}

}  // namespace

std::string Address::Text() const {
  if (is_unix()) return StrCat(kUnix, path);
  const bool is_v6 = host.find(':') != host.npos;
  return is_v6 ? StrCat('[', host, "]:", port) : StrCat(host, ':', port);
}

Result<Address> ParseAddress(std::string_view text, std::string_view what) {
  const auto fail = [&](std::string_view why) {
    return Fail(ErrorCode::kUsage,
                StrCat(what, " '", text, "' ", why, "; give HOST:PORT or unix:PATH"));
  };
  Address address;
  if (text.starts_with(kUnix)) {
    address.path = text.substr(kUnix.size());
    if (address.path.empty()) return fail("names no path");
    if (address.path.size() >= sizeof(sockaddr_un::sun_path))
      return fail(StrCat("has a path of ", address.path.size(),
                         " bytes, and a socket's is shorter than ", sizeof(sockaddr_un::sun_path)));
    return address;
  }
  const size_t colon = text.rfind(':');
  if (colon == text.npos) return fail("has no port");
  std::string_view host = text.substr(0, colon);
  address.port = text.substr(colon + 1);
  if (!IsPort(address.port)) return fail("has no port from 0 to 65535");
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != host.npos)
    return fail("is an IPv6 address without brackets");
  if (host.empty()) return fail("names no host");
  address.host = host;
  return address;
}

}  // namespace pinion
