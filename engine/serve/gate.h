#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/serve/http.h"
#include "engine/serve/options.h"

namespace pinion {

// Judges a request by its header, before its body is read: whether it was meant for this server
// (Host), whether a web page sent it (Origin) and whether the client has a key. Without the first
// two any page that a user opens could drive a server on the user's own machine: by DNS that points
// a foreign name at 127.0.0.1, or by requests that a browser sends without asking first.
//
// Immutable, no I/O: any thread.
class Gate {
 public:
  // `host`: the address that the server listens on. `own_names`: further names and addresses of
  // this machine, without ports.
  Gate(HttpRules rules, const std::string& host, const std::vector<std::string>& own_names);

  HttpVerdict Check(const HttpHead& head) const;

 private:
  std::optional<HttpRefusal> CheckHost(const HttpHead& head) const;
  bool IsOwnPage(const HttpHead& head, std::string_view origin) const;
  std::optional<HttpRefusal> CheckOrigin(std::string_view origin) const;
  HttpRefusal AnswerPreflight(const HttpHead& head, std::string_view method) const;
  std::optional<HttpRefusal> CheckKey(const HttpHead& head, std::string& client) const;
  HttpFields CorsHeaders(std::string_view origin) const;

  bool NeedsKey(std::string_view path) const;
  bool IsOwnHost(const std::string& name) const;

  HttpRules rules_;
  bool any_host_ = false, any_origin_ = false;
  std::vector<std::string> hosts_;  // in lower case, addresses as inet_ntop writes them
};

// The place of `given` among `keys`. The time depends on the lengths alone: every byte of every key
// is compared, so that answers do not tell how much of a guess was right.
std::optional<size_t> FindKey(const std::vector<std::string>& keys, std::string_view given);

}  // namespace pinion
