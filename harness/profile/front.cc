#include "harness/profile/front.h"

#include "engine/base/strings.h"

namespace pinion::harness {

std::string HaproxyText(const std::string& host, int port, int replicas,
                        const std::string& health) {
  std::string text = StrCat("# haproxy -f FILE: one address before ", replicas,
                            R"( replicas.
defaults
  mode http
  timeout connect 5s
  # An answer may take long, and so may its first token.
  timeout client 1h
  timeout server 1h

frontend pinion
  bind )",
                            host, ":", port, R"(
  default_backend replicas

backend replicas
  # Fewest requests under way first; a client that sends the cookie back stays where it is.
  balance leastconn
  cookie PINION_REPLICA insert indirect nocache
  # A replica answers to names of its own machine alone, which the proxy's may not be.
  http-request set-header Host localhost
  option httpchk GET )",
                            health, "\n  option http-no-delay\n");
  for (int index = 0; index < replicas; ++index)
    text += StrCat("  server replica", index + 1, " ", kReplicaHost, ":", ReplicaPort(port, index),
                   " check cookie ", index + 1, "\n");
  return text;
}

}  // namespace pinion::harness
