#pragma once

#include <string>

namespace pinion::harness {

// Several replicas have one address through what stands before them: it listens on `port`, the
// replicas on this machine alone, on the ports that follow.
inline constexpr char kReplicaHost[] = "127.0.0.1";
inline constexpr int kUsualPort = 8000;
constexpr int ReplicaPort(int port, int index) { return port + 1 + index; }

// An HAProxy configuration, whole, that spreads requests as a sweep's load is spread
// (harness/load/spread.h): to the replica with the fewest under way; a client that keeps the cookie
// stays with its replica, whose prefix cache knows its conversation. `health`: a path that answers
// 200 once requests are taken.
std::string HaproxyText(const std::string& host, int port, int replicas,
                        const std::string& health = "/health");

}  // namespace pinion::harness
