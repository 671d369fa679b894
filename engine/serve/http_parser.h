#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/serve/http.h"

namespace pinion {

// Reads one HTTP/1 request from bytes in any pieces. Without a socket, so that tests and fuzzers
// can feed it. Its memory is bounded: the header by its limits, the body by its own and by the
// budget, of which it takes as the bytes arrive (a length that is only announced takes nothing).
class HttpParser {
 public:
  struct Limits {
    size_t header_bytes = 32 << 10;
    size_t header_fields = 256;
    size_t body_bytes = 32 << 20;
  };
  // `memory`: may be null, for no limit.
  HttpParser(const Limits& limits, std::shared_ptr<MemoryBudget> memory);
  // Sets the client whose memory the body takes. Once the header is done, before any of the body is
  // fed. A body of which the announced length is too much is refused from now on.
  void SetClient(const std::string& client);
  ~HttpParser();
  HttpParser(const HttpParser&) = delete;
  HttpParser& operator=(const HttpParser&) = delete;

  // Returns how many bytes it has used; the rest must come again, with what follows it, unless the
  // request is done (it is the next one's). Stops once at the header's end, so that the caller can
  // judge the request before its body is kept.
  size_t Feed(std::string_view bytes);

  bool header_done() const;
  bool done() const;
  // The answer to a request that cannot be read; the connection is of no more use.
  const std::optional<HttpRefusal>& refusal() const;

  // Once the header is done. The peer's address is not in it.
  HttpHead TakeHead();
  bool keep_alive() const;
  bool wants_continue() const;  // the client waits for "100 Continue" before it sends the body

  // Once the request is done.
  std::string TakeBody();
  MemoryShare TakeMemory();  // of the body

 private:
  class Reader;
  std::unique_ptr<Reader> reader_;
};

}  // namespace pinion
