#include "harness/profile/front.h"

#include <algorithm>
#include <cctype>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

constexpr int kMaxPort = 65535;

// Configurations take these characters as they are.
bool IsHost(const std::string& host, bool in_brackets) {
  return !host.empty() && std::all_of(host.begin(), host.end(), [&](unsigned char c) {
    return std::isalnum(c) || c == '.' || (in_brackets ? c == ':' : c == '-' || c == '_');
  });
}

Result<FrontAddress> ParseAddress(const std::string& part, int usual_port,
                                  const std::string& flag) {
  const bool in_brackets = part.starts_with('[');
  const size_t end = in_brackets ? part.find(']') : std::min(part.find(':'), part.size());
  const auto wrong = [&] {
    return Fail(
        ErrorCode::kUsage,
        StrCat(flag, ": '", part, "' is not an address; use HOST, HOST:PORT or [IPv6]:PORT, ",
               "with commas between several"));
  };
  if (end == std::string::npos) return wrong();
  FrontAddress address{part.substr(in_brackets, end - in_brackets), usual_port};
  const std::string rest = part.substr(end + in_brackets);
  if (!IsHost(address.host, in_brackets)) return wrong();
  if (rest.empty()) return address;
  const auto port = ParseInt(rest.substr(1), flag);
  if (rest.front() != ':' || !port || *port < 1 || *port > kMaxPort) return wrong();
  address.port = static_cast<int>(*port);
  return address;
}

std::string TextOf(const FrontAddress& address) {
  const bool is_v6 = address.host.find(':') != std::string::npos;
  return StrCat(is_v6 ? "[" : "", address.host, is_v6 ? "]:" : ":", address.port);
}

std::string Heading(const char* usage, size_t servers) {
  return StrCat("# ", usage, ": one address before ", servers,
                servers == 1 ? " server" : " servers",
                ", each of which is\n#   pinion launch PROFILE --host 0.0.0.0 --port PORT\n");
}

}  // namespace

Result<std::vector<FrontAddress>> ParseFrontAddresses(const std::string& text, int usual_port,
                                                      const std::string& flag) {
  std::vector<FrontAddress> servers;
  for (const std::string& part : Split(text, ',')) {
    PINION_ASSIGN(FrontAddress one, ParseAddress(std::string(Trim(part)), usual_port, flag));
    for (const FrontAddress& other : servers)
      if (TextOf(other) == TextOf(one))
        return Fail(ErrorCode::kUsage, StrCat(flag, " names ", TextOf(one),
                                              " twice; several engines of one host are the "
                                              "profile's replicas"));
    servers.push_back(std::move(one));
  }
  return servers;
}

std::string HaproxyText(const FrontAddress& listen, const std::vector<FrontAddress>& servers) {
  std::string text = StrCat(Heading("haproxy -f FILE", servers.size()), R"(defaults
  mode http
  timeout connect 5s
  # An answer may take long, and so may its first token.
  timeout client 1h
  timeout server 1h
  timeout http-request 1m

frontend pinion
  bind )",
                            TextOf(listen), R"(
  default_backend servers

backend servers
  # Fewest requests under way first; a client that sends the cookie back stays where it is, beside
  # the prefix cache of its conversation.
  balance leastconn
  cookie PINION_SERVER insert indirect nocache
  # A server answers to names of its own machine alone, which the proxy's may not be.
  http-request set-header Host localhost
  option httpchk
  http-check send meth GET uri /health hdr Host localhost
  http-check expect status 200
  option http-no-delay
  option redispatch
  retry-on conn-failure
)");
  for (size_t i = 0; i < servers.size(); ++i)
    text += StrCat("  server server", i + 1, " ", TextOf(servers[i]), " check inter 2s cookie ",
                   i + 1, "\n");
  return text;
}

std::string NginxText(const FrontAddress& listen, const std::vector<FrontAddress>& servers) {
  std::string text = StrCat(Heading("nginx -c FILE", servers.size()), R"(events {
  worker_connections 8192;
}

http {
  upstream servers {
    # Fewest requests under way first. One that cannot be reached or is not ready is left out for a
    # while; nginx itself never asks /health (its commercial version does).
    least_conn;
)");
  for (const FrontAddress& one : servers)
    text += StrCat("    server ", TextOf(one), " max_fails=1 fail_timeout=5s;\n");
  return text + StrCat(R"(    keepalive 256;
  }

  server {
    listen )",
                       TextOf(listen), R"(;
    client_max_body_size 0;
    client_body_buffer_size 1m;  # a whole request, so that another server can get it
    location / {
      proxy_pass http://servers;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      # A server answers to names of its own machine alone, which the proxy's may not be.
      proxy_set_header Host localhost;
      # Tokens go out as they come, and the next one may take long.
      proxy_buffering off;
      proxy_connect_timeout 5s;
      proxy_read_timeout 1h;
      proxy_send_timeout 1h;
      proxy_next_upstream error http_503 non_idempotent;
    }
  }
}
)");
}

}  // namespace pinion::harness
