#include "engine/serve/gate.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <random>
#include <utility>

#include "engine/base/strings.h"
#include "engine/serve/http_refusal.h"

namespace pinion {
namespace {

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

bool Contains(const std::vector<std::string>& all, std::string_view one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// "Example.org.:8000" -> "example.org", "[0:0::1]:8000" -> "::1"; a bare IPv6 address is taken,
// too.
std::string HostName(std::string_view host) {
  if (host.starts_with('['))
    host = host.substr(1, host.find(']') - 1);
  else if (std::count(host.begin(), host.end(), ':') == 1)
    host = host.substr(0, host.find(':'));
  if (host.ends_with('.')) host.remove_suffix(1);
  std::string name = Lower(host);
  in6_addr address;
  char text[INET6_ADDRSTRLEN];
  if (inet_pton(AF_INET6, name.c_str(), &address) == 1 &&
      inet_ntop(AF_INET6, &address, text, sizeof text))
    name = text;
  return name;
}

// For an error message: a hostile header must not fill a log.
std::string Clipped(std::string_view text) { return std::string(text.substr(0, 100)); }

// Ids are for finding requests in logs, not secrets.
std::string NewId() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id(32, '0');
  for (char& digit : id) digit = kDigits[random() >> 60];
  return id;
}

// The client's own id, unless it could break a log line or a header.
std::string IdOf(const HttpHead& head) {
  constexpr size_t kLongest = 128;
  const std::string_view given = head.headers.Find("X-Request-Id");
  const bool harmless =
      std::all_of(given.begin(), given.end(), [](char c) { return c > ' ' && c <= '~'; });
  return !given.empty() && given.size() <= kLongest && harmless ? std::string(given) : NewId();
}

// The client that a request is charged to. IPv6 clients count by /64 network, because the owner of
// one address has all 2^64 of them; but a link-local network is that of all machines on the link.
std::string ClientOf(const std::string& address) {
  in6_addr whole;
  if (inet_pton(AF_INET6, address.c_str(), &whole) != 1) return address;
  if (IN6_IS_ADDR_LINKLOCAL(&whole) || IN6_IS_ADDR_LOOPBACK(&whole)) return address;
  char text[INET6_ADDRSTRLEN];
  if (IN6_IS_ADDR_V4MAPPED(&whole))
    return inet_ntop(AF_INET, &whole.s6_addr[12], text, sizeof text);
  std::fill(whole.s6_addr + 8, whole.s6_addr + 16, 0);
  return StrCat(inet_ntop(AF_INET6, &whole, text, sizeof text), "/64");
}

// Whether the server is up: supervisors ask that without a key.
bool TellsOfLife(std::string_view path) {
  return path == "/health" || path == "/v1/health" || path == "/ping";
}

bool TellsOfServer(std::string_view path) { return TellsOfLife(path) || path == "/metrics"; }

std::string_view HostOf(const HttpHead& head) {
  return head.host ? *head.host : head.headers.Find("Host");
}

// A bearer token or, as Anthropic's clients send it, `x-api-key`; the first beats the second.
std::optional<std::string_view> GivenKey(const HttpHead& head) {
  const std::string_view given = head.headers.Find("Authorization");
  constexpr std::string_view kScheme = "bearer ";
  if (Lower(given.substr(0, kScheme.size())) == kScheme) return Trim(given.substr(kScheme.size()));
  if (head.headers.Count("X-Api-Key") > 0) return Trim(head.headers.Find("X-Api-Key"));
  return {};
}

// 0 if the two are equal. `length`: how many bytes to look at, whatever the two hold.
unsigned Difference(std::string_view a, std::string_view b, size_t length) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < length; ++i) {
    const auto byte = [&](std::string_view text) {
      return static_cast<unsigned char>(i < text.size() ? text[i] : 0);
    };
    difference |= static_cast<unsigned>(byte(a) ^ byte(b));
  }
  return difference;
}

}  // namespace

std::optional<size_t> FindKey(const std::vector<std::string>& keys, std::string_view given) {
  size_t longest = 0;
  for (const std::string& key : keys) longest = std::max(longest, key.size());
  size_t found = keys.size();
  for (size_t i = 0; i < keys.size(); ++i)
    if (Difference(keys[i], given, longest) == 0) found = i;
  return found < keys.size() ? std::optional(found) : std::nullopt;
}

Gate::Gate(HttpRules rules, const std::string& host, const std::vector<std::string>& own_names)
    : rules_(std::move(rules)),
      any_host_(Contains(rules_.allowed_hosts, "*")),
      any_origin_(Contains(rules_.allowed_origins, "*")) {
  hosts_ = {"127.0.0.1", "::1", HostName(host)};
  for (const std::vector<std::string>* names : {&own_names, &std::as_const(rules_.allowed_hosts)})
    for (const std::string& name : *names) hosts_.push_back(HostName(name));
}

HttpVerdict Gate::Check(const HttpHead& head) const {
  HttpVerdict verdict;
  verdict.id = IdOf(head);
  verdict.client = ClientOf(head.address);
  verdict.tells_of_server = TellsOfServer(head.path);
  verdict.headers = {{"X-Request-Id", verdict.id}};
  if ((verdict.refusal = CheckHost(head))) return verdict;
  const std::string_view origin = head.headers.Find("Origin");
  const bool foreign = head.headers.Count("Origin") > 0 && !IsOwnPage(head, origin);
  if (foreign) {
    if ((verdict.refusal = CheckOrigin(origin))) return verdict;
    for (auto& header : CorsHeaders(origin)) verdict.headers.push_back(std::move(header));
    const std::string_view asked = head.headers.Find("Access-Control-Request-Method");
    // Browsers ask without the key first, and send it only once they may.
    if (head.method == "OPTIONS" && !asked.empty()) {
      verdict.refusal = AnswerPreflight(head, asked);
      return verdict;
    }
  }
  if (NeedsKey(head.path)) verdict.refusal = CheckKey(head, verdict.client);
  return verdict;
}

std::optional<HttpRefusal> Gate::CheckHost(const HttpHead& head) const {
  const size_t count = head.headers.Count("Host");
  if (count > 1 || (count == 0 && head.http11))
    return MakeRefusal(400, StrCat("the request has ", count, " Host headers, want one"));
  if ((count == 0 && !head.host) || any_host_) return {};
  const std::string_view given = HostOf(head);
  const std::string name = HostName(given);
  if (IsOwnHost(name)) return {};
  return MakeRefusal(403, StrCat("'", Clipped(given),
                                 "' is not a name of this server; start it with "
                                 "--allowed-hosts ",
                                 Clipped(name), " if it is"));
}

bool Gate::NeedsKey(std::string_view path) const {
  return !TellsOfLife(path) && !(rules_.page && path == "/");
}

bool Gate::IsOwnHost(const std::string& name) const {
  return name == "localhost" || name.ends_with(".localhost") || Contains(hosts_, name);
}

// Our page's requests: their origin is the very host that they ask. A name that --allowed-hosts
// admits only by '*' may be a foreign page's that points here. Behind a proxy that ends TLS the
// page's scheme is https though ours is http, never the other way round.
bool Gate::IsOwnPage(const HttpHead& head, std::string_view origin) const {
  constexpr std::string_view kHttp = "http://", kHttps = "https://";
  const bool secure = origin.starts_with(kHttps);
  if (!rules_.page || !(secure || (origin.starts_with(kHttp) && rules_.ssl_certfile.empty())))
    return false;
  origin.remove_prefix(secure ? kHttps.size() : kHttp.size());
  const std::string host = Lower(HostOf(head));
  return origin == host && IsOwnHost(HostName(host));
}

// "null" comes from pages in files and sandboxes.
std::optional<HttpRefusal> Gate::CheckOrigin(std::string_view origin) const {
  if (any_origin_ || Contains(rules_.allowed_origins, origin)) return {};
  return MakeRefusal(403, StrCat("web pages of '", Clipped(origin),
                                 "' may not use this server; start it with --allowed-origins ",
                                 Clipped(origin), " if they may"));
}

HttpFields Gate::CorsHeaders(std::string_view origin) const {
  // With credentials a browser takes no "*".
  const bool any = any_origin_ && !rules_.allow_credentials;
  HttpFields headers = {{"Access-Control-Allow-Origin", any ? "*" : std::string(origin)}};
  if (!any) headers.emplace_back("Vary", "Origin");
  if (rules_.allow_credentials) headers.emplace_back("Access-Control-Allow-Credentials", "true");
  headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  return headers;
}

HttpRefusal Gate::AnswerPreflight(const HttpHead& head, std::string_view method) const {
  const bool any_method = Contains(rules_.allowed_methods, "*");
  if (!any_method && !Contains(rules_.allowed_methods, method))
    return MakeRefusal(403, StrCat("web pages may not use ", Clipped(method), " here, only ",
                                   Join(rules_.allowed_methods, ", "), " (--allowed-methods)"));
  const std::string_view asked = head.headers.Find("Access-Control-Request-Headers");
  if (!Contains(rules_.allowed_headers, "*")) {
    for (const std::string& name : Split(asked, ',')) {
      const std::string wanted = Lower(Trim(name));
      const bool allowed = wanted.empty() ||
                           std::any_of(rules_.allowed_headers.begin(), rules_.allowed_headers.end(),
                                       [&](const auto& one) { return Lower(one) == wanted; });
      if (!allowed)
        return MakeRefusal(
            403, StrCat("web pages may not send the header ", Clipped(wanted), " here, only ",
                        Join(rules_.allowed_headers, ", "), " (--allowed-headers)"));
    }
  }
  HttpRefusal answer{204, "", {}};
  answer.headers.emplace_back("Access-Control-Allow-Methods", std::string(method));
  if (!asked.empty())
    answer.headers.emplace_back("Access-Control-Allow-Headers", std::string(asked));
  answer.headers.emplace_back("Access-Control-Max-Age", "600");
  return answer;
}

std::optional<HttpRefusal> Gate::CheckKey(const HttpHead& head, std::string& client) const {
  if (rules_.api_keys.empty()) return {};
  const std::optional<std::string_view> given = GivenKey(head);
  const auto key = FindKey(rules_.api_keys, given.value_or(""));
  if (!key) {
    const ApiError error{401,
                         given ? "the API key is not one of this server's"
                               : "this server wants an API key: send 'Authorization: Bearer KEY'",
                         "", ""};
    return HttpRefusal{401, ErrorBody(head.path, error), {{"WWW-Authenticate", "Bearer"}}};
  }
  client = StrCat("key ", *key + 1);
  return {};
}

}  // namespace pinion
