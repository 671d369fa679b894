#include "harness/load/server_url.h"

#include <curl/curl.h>

#include <memory>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

using Url = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

tl::unexpected<Error> BadUrl(std::string_view text, std::string_view why) {
  return Fail(ErrorCode::kUsage, StrCat("'", text, "' is not a server's address: ", why,
                                        "; give one such as http://127.0.0.1:8000"));
}

// A part of the URL; empty if it has none.
std::string Part(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return "";
  const std::unique_ptr<char, decltype(&curl_free)> owner(text, curl_free);
  return text;
}

bool IsLocal(std::string_view host) {
  return host == "localhost" || host == "[::1]" || host.substr(0, 4) == "127.";
}

std::string WithoutSlashes(std::string text) {
  while (!text.empty() && text.back() == '/') text.pop_back();
  return text;
}

}  // namespace

ServerUrl ServerUrl::OfPort(int port) { return {StrCat("http://127.0.0.1:", port), true}; }

Result<ServerUrl> ParseServerUrl(std::string_view text) {
  constexpr std::string_view kVersion = "/v1";
  const bool has_scheme = text.find("://") != std::string_view::npos;
  const std::string whole = StrCat(has_scheme ? "" : "http://", text);
  const Url url(curl_url(), curl_url_cleanup);
  if (!url) return Fail(ErrorCode::kFailed, "no memory for a URL");
  const CURLUcode code =
      curl_url_set(url.get(), CURLUPART_URL, whole.c_str(),
                   CURLU_DISALLOW_USER | CURLU_NON_SUPPORT_SCHEME | CURLU_PATH_AS_IS);
  if (code != CURLUE_OK) return BadUrl(text, curl_url_strerror(code));
  const std::string scheme = Part(url.get(), CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https")
    return BadUrl(text, StrCat("'", scheme, "' is not supported, only http and https are"));
  if (Part(url.get(), CURLUPART_PORT) == "0") return BadUrl(text, "no server has port 0");
  if (!Part(url.get(), CURLUPART_QUERY).empty() || !Part(url.get(), CURLUPART_FRAGMENT).empty())
    return BadUrl(text, "it has a query or a fragment");
  std::string path = WithoutSlashes(Part(url.get(), CURLUPART_PATH));
  if (std::string_view(path).ends_with(kVersion)) path.resize(path.size() - kVersion.size());
  curl_url_set(url.get(), CURLUPART_PATH, path.c_str(), 0);
  return ServerUrl{WithoutSlashes(Part(url.get(), CURLUPART_URL)),
                   IsLocal(Part(url.get(), CURLUPART_HOST))};
}

}  // namespace pinion::harness
