#pragma once

#include <string>

namespace pinion::harness {

// A proxy in front of several replicas gives them one address: it listens on `port`, the
// replicas only on this machine, on the ports that follow.
inline constexpr char kReplicaHost[] = "127.0.0.1";
inline constexpr int kUsualPort = 8000;
constexpr int ReplicaPort(int port, int index) { return port + 1 + index; }

// An HAProxy configuration, whole, that spreads requests as a sweep's load is spread
// (harness/load/spread.h): to the replica with the fewest in flight; a client that keeps the cookie
// stays with its replica, whose prefix cache holds its conversation. `health`: a path that answers
// 200 once the server accepts requests.
std::string HaproxyText(const std::string& host, int port, int replicas,
                        const std::string& health = "/health");

}  // namespace pinion::harness
