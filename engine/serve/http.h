#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/serve/memory_budget.h"

namespace pinion {

using HttpFields = std::vector<std::pair<std::string, std::string>>;

// The fields of a header, in their order. Names are compared without regard to case.
class HttpHeaders {
 public:
  void Add(std::string name, std::string value) {
    fields_.emplace_back(std::move(name), std::move(value));
  }
  std::string_view Find(std::string_view name) const;  // the first one's value; "" if absent
  size_t Count(std::string_view name) const;
  const HttpFields& fields() const { return fields_; }

 private:
  HttpFields fields_;
};

// The part of a request that comes before its body.
struct HttpHead {
  std::string method;               // "GET"
  std::string path;                 // of the target, without the query, not decoded
  std::string query;                // after the '?', not decoded
  std::optional<std::string> host;  // of a target that has one: it counts instead of Host
  HttpHeaders headers;
  std::string address;  // the peer's IP address
  bool http11 = true;   // or later
};

struct HttpRequest : HttpHead {
  std::string id;      // for logs and answers
  std::string client;  // whose turn it takes: "key 2", or the address
  std::string body;
  MemoryShare memory;      // of the body; lives as long as the objects made of it
  bool head = false;       // a HEAD request: handled as GET, answered without a body
  int64_t arrived_ns = 0;  // CLOCK_MONOTONIC, when its last byte arrived
};

// An answer that is given instead of reading the body.
struct HttpRefusal {
  int status = 0;
  std::string body;  // JSON
  HttpFields headers;
};
struct HttpVerdict {
  std::optional<HttpRefusal> refusal;
  std::string id, client;  // see HttpRequest
  HttpFields headers;      // for any answer to the request
  // The answer says how the server is: it needs no request memory, of which there may be none.
  bool tells_of_server = false;
};

// One finished exchange. Of the client's text it holds the path alone.
struct AccessRecord {
  std::string id, client, address, method, path;
  int status = 0;
  size_t bytes_in = 0, bytes_out = 0;
  double seconds = 0;
  bool complete = false;  // the client got all of the answer
};

// The answer to one request: either Send once, or Begin, Write..., End. Calls after the client has
// gone do nothing. Nothing here waits for the client: unsent bytes are kept, and if they exceed the
// server's limit the client is cut off.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  // Before Send or Begin. Both texts are the server's own: nothing is escaped.
  virtual void AddHeader(std::string name, std::string value) = 0;
  virtual void Send(int status, std::string_view content_type, std::string body) = 0;
  // Starts a stream with status 200. For HEAD this is the whole answer.
  virtual void Begin(std::string_view content_type) = 0;
  virtual void Write(std::string_view text) = 0;
  virtual void End() = 0;
  // Called once if the client disappears before the answer is complete.
  virtual void OnGone(std::function<void()> callback) = 0;
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: any free port
  size_t max_header_bytes = 32 << 10;
  size_t max_header_fields = 256;
  size_t max_body_bytes = 32 << 20;   // above: 413
  size_t max_unsent_bytes = 8 << 20;  // of one reply, beside its largest part
  // At the limit the connection that has been idle longest makes way; if none is, newcomers wait.
  size_t max_connections = 4096;
  double idle_seconds = 75;    // between requests of a kept-alive connection
  double header_seconds = 20;  // from a request's first byte to the end of its header
  double body_seconds = 60;    // from there to the end of the body
  double write_seconds = 60;   // without the client accepting a byte
  // Judges a header before the body is read; none: all requests pass.
  std::function<HttpVerdict(const HttpHead&)> check;
  std::function<void(const AccessRecord&)> log;
  std::shared_ptr<MemoryBudget> memory;   // of bodies and unsent answers; none: no limit
  double sse_keep_alive_seconds = 0;      // see HttpRules
  std::string root_path;                  // likewise
  std::string ssl_certfile, ssl_keyfile;  // PEM; empty: no TLS
};

// "127.0.0.1:80" or "[::1]:80", as a URL has it.
std::string HostAndPort(const std::string& host, int port);

// HTTP/1.0 and 1.1 with keep-alive and pipelining, and the event loop of the front end. Only this,
// http_connection, http_channel and http_parser use Boost. Thread rule: everything happens on the
// thread that calls Run; only Post may be called from another thread.
class HttpServer {
 public:
  using Handler = std::function<void(HttpRequest, std::shared_ptr<HttpReply>)>;

  // Binds and listens; an error names host and port. `handler` answers now or later, and must not
  // throw.
  static Result<std::unique_ptr<HttpServer>> Listen(const HttpOptions& options, Handler handler);
  virtual ~HttpServer() = default;

  virtual uint16_t port() const = 0;

  // Calls `callback` whenever `fd` has something to read, until it returns false. The descriptor
  // stays the caller's and must outlive Run, unless Unwatch is called first.
  virtual void WatchReadable(int fd, std::function<bool()> callback) = 0;
  // Calls `callback` once, when `fd` can be written again.
  virtual void OnceWritable(int fd, std::function<void()> callback) = 0;
  // Forgets `fd`, which may then be closed: neither callback is called any more.
  virtual void Unwatch(int fd) = 0;
  // Calls `callback` once, after `seconds`.
  virtual void After(double seconds, std::function<void()> callback) = 0;
  // Calls `callback` at every one of `signals`.
  virtual void OnSignal(const std::vector<int>& signals, std::function<void()> callback) = 0;
  virtual void Post(std::function<void()> callback) = 0;

  // Serves until Stop is called or Drain is done.
  virtual void Run() = 0;
  // Stops accepting, closes idle connections and gives the others up to `seconds` to finish their
  // answers. Then calls `at_limit`, which may end the rest, and gives those answers up to a second
  // to leave; then Run returns.
  virtual void Drain(double seconds, std::function<void()> at_limit = {}) = 0;
  virtual void Stop() = 0;
  virtual size_t connections() const = 0;
};

}  // namespace pinion
