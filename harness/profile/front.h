#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"

// Configurations of proxies in front of servers on several hosts, each started from the same
// profile. Several engines of one host need none: they are behind one server (replicas).

namespace pinion::harness {

struct FrontAddress {
  std::string host;  // a name, an IPv4 address, or an IPv6 address without its brackets
  int port = 0;
};

// "one,two:9000,[::1]": at least one, each once; `usual_port` where there is none. Errors (kUsage)
// name `flag` and the part.
Result<std::vector<FrontAddress>> ParseFrontAddresses(const std::string& text, int usual_port,
                                                      const std::string& flag);

// Whole configurations. A request goes to the server with the fewest under way, unless /health says
// that it is not ready (nginx has no such check without its commercial version: it leaves out, for
// a while, a server that cannot be reached or answers 503). Nothing is buffered, and an answer may
// take an hour. Servers answer to names of their own machines alone, so they are all asked as
// localhost.
std::string HaproxyText(const FrontAddress& listen, const std::vector<FrontAddress>& servers);
std::string NginxText(const FrontAddress& listen, const std::vector<FrontAddress>& servers);

}  // namespace pinion::harness
