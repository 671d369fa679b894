#include "engine/base/strings.h"
#include "harness/load/http_client.h"

namespace pinion::harness {
namespace {

tl::unexpected<Error> BadUrl(std::string_view text, const std::string& why) {
  return Fail(ErrorCode::kUsage, StrCat("'", text, "' is not a server's address: ", why,
                                        "; give one such as http://127.0.0.1:8000"));
}

}  // namespace

std::string ServerUrl::Place() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return StrCat(ipv6 ? "[" : "", host, ipv6 ? "]" : "", ":", port);
}

std::string ServerUrl::Text() const { return StrCat("http://", Place(), prefix); }

Result<ServerUrl> ParseServerUrl(std::string_view text) {
  constexpr std::string_view kAfterScheme = "://", kVersion = "/v1";
  std::string_view rest = text;
  if (const size_t end = text.find(kAfterScheme); end != std::string_view::npos) {
    const std::string_view scheme = text.substr(0, end);
    if (scheme != "http")
      return BadUrl(text,
                    StrCat("'", scheme, "' is not supported, put a proxy in front of the server"));
    rest.remove_prefix(end + kAfterScheme.size());
  }
  ServerUrl url;
  const size_t slash = rest.find('/');
  std::string_view place = rest.substr(0, slash);
  std::string_view prefix = slash == std::string_view::npos ? "" : rest.substr(slash);
  while (!prefix.empty() && prefix.back() == '/') prefix.remove_suffix(1);
  if (prefix.size() >= kVersion.size() && prefix.substr(prefix.size() - 3) == kVersion)
    prefix.remove_suffix(kVersion.size());
  url.prefix = prefix;
  std::string_view port;
  if (!place.empty() && place[0] == '[') {  // [::1]:8000
    const size_t end = place.find(']');
    if (end == std::string_view::npos) return BadUrl(text, "its '[' is not closed");
    url.host = place.substr(1, end - 1);
    if (end + 1 < place.size()) port = place.substr(end + 1);
  } else {
    const size_t colon = place.find(':');
    url.host = place.substr(0, colon);
    if (colon != std::string_view::npos) port = place.substr(colon);
  }
  if (url.host.empty()) return BadUrl(text, "it has no host");
  for (char letter : StrCat(url.host, url.prefix))
    if (static_cast<unsigned char>(letter) <= ' ')
      return BadUrl(text, "it contains a blank or a control character");
  if (port.empty()) return url;
  const auto number = port[0] == ':' ? ParseInt(port.substr(1), "port") : ParseInt(port, "port");
  if (!number || *number < 1 || *number > 65535)
    return BadUrl(text, StrCat("port '", port.substr(1), "' is not from 1 to 65535"));
  url.port = static_cast<uint16_t>(*number);
  return url;
}

}  // namespace pinion::harness
