#include "tests/engine/serve/client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "engine/base/clock.h"
#include "engine/base/strings.h"

namespace pinion {

bool Await(const std::function<bool()>& holds) {
  for (const int64_t start = NowNs(); SecondsSince(start) < kPatienceSeconds; usleep(5000))
    if (holds()) return true;
  return false;
}

RawClient::RawClient(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
}
RawClient::~RawClient() { Close(); }

void RawClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (put <= 0) return;  // the server may close first: that is its right
    bytes.remove_prefix(static_cast<size_t>(put));
  }
}

std::string RawClient::ReadUntil(std::string_view text) {
  std::string got;
  char chunk[16 << 10];
  const int64_t start = NowNs();
  while ((text.empty() || got.find(text) == std::string::npos) &&
         SecondsSince(start) < kPatienceSeconds) {
    pollfd wait{fd_, POLLIN, 0};
    if (poll(&wait, 1, 1000) <= 0) continue;
    const ssize_t count = recv(fd_, chunk, sizeof chunk, 0);
    if (count <= 0) return got;
    got.append(chunk, static_cast<size_t>(count));
  }
  EXPECT_LT(SecondsSince(start), kPatienceSeconds) << "waited in vain; got: " << got;
  return got;
}

std::string RawClient::ReadAll() { return ReadUntil(""); }
void RawClient::CloseWriting() { shutdown(fd_, SHUT_WR); }
void RawClient::Close() {
  if (const int fd = std::exchange(fd_, -1); fd >= 0) close(fd);
}

std::string Exchange(uint16_t port, std::string_view request) {
  RawClient client(port);
  client.Send(request);
  return client.ReadAll();
}
std::string Get(uint16_t port, std::string_view path) {
  return Exchange(
      port, StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
}
std::string Post(uint16_t port, std::string_view path, std::string_view body) {
  return Exchange(port, StrCat("POST ", path,
                               " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                               "Content-Type: application/json\r\nContent-Length: ",
                               body.size(), "\r\n\r\n", body));
}
std::string StatusOf(std::string_view response) {
  return response.size() < 12 ? std::string() : std::string(response.substr(9, 3));
}
std::string BodyOf(std::string_view response) {
  const auto end = response.find("\r\n\r\n");
  return end == std::string_view::npos ? std::string() : std::string(response.substr(end + 4));
}

}  // namespace pinion
