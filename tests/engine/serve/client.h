#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace pinion {

// How long tests wait for what must come. It only bounds a failure, so it is far longer than the
// slowest machine needs.
inline constexpr double kPatienceSeconds = 60;

// Waits until `holds`, and says whether it came to.
bool Await(const std::function<bool()>& holds);

// A client made of a plain socket, so that tests can say exactly what is sent.
class RawClient {
 public:
  explicit RawClient(uint16_t port);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void Send(std::string_view bytes);
  // Reads until `text` has come, the server closes, or kPatienceSeconds are over; returns
  // everything since the last call.
  std::string ReadUntil(std::string_view text);
  // Reads until the server closes.
  std::string ReadAll();
  void CloseWriting();
  void Close();

 private:
  int fd_;
};

// One request on a connection of its own; returns header and body.
std::string Exchange(uint16_t port, std::string_view request);
std::string Get(uint16_t port, std::string_view path);
std::string Post(uint16_t port, std::string_view path, std::string_view body);
// "200" of "HTTP/1.1 200 OK".
std::string StatusOf(std::string_view response);
std::string BodyOf(std::string_view response);

}  // namespace pinion
