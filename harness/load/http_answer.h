#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace pinion::harness {

// Reads one HTTP/1 answer from bytes in any pieces. Without a socket, so that fuzzers can feed it.
// The body goes to `on_body` as it comes, and what is kept of the rest is bounded, whatever the
// server sends.
class HttpAnswer {
 public:
  static constexpr size_t kMostHeaderBytes = size_t{64} << 10;  // also of a chunk's header

  explicit HttpAnswer(std::function<void(std::string_view bytes)> on_body);
  ~HttpAnswer();
  HttpAnswer(const HttpAnswer&) = delete;
  HttpAnswer& operator=(const HttpAnswer&) = delete;

  // Returns how many bytes it has used; the rest must come again with what follows it, unless the
  // answer is done.
  size_t Feed(std::string_view bytes);
  // No more bytes will come; `failure` says why if the connection broke. Ends an answer that states
  // no length.
  void End(const std::string& failure = "");

  int status() const;                // 0: the header is not complete
  bool done() const;                 // complete
  const std::string& error() const;  // one phrase if the answer can no longer become complete
  bool keep_alive() const;           // of a complete one: the connection may be used again

 private:
  class Reader;
  std::unique_ptr<Reader> reader_;
};

}  // namespace pinion::harness
