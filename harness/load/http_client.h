#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace pinion::harness {

// The address of a server: http://host:port/prefix.
struct ServerUrl {
  std::string host = "127.0.0.1";
  uint16_t port = 80;
  std::string prefix;  // "" or "/some/path", no slash at its end

  std::string Place() const;  // "host:port", an IPv6 address in brackets: the Host header
  std::string Text() const;   // "http://host:port/prefix"
};

// "http://127.0.0.1:8000", "localhost:8000", "http://[::1]:8000/v1/": a trailing "/v1" is removed,
// since every path of the API begins with it. Errors (kUsage): https, no host, a port out of
// range.
Result<ServerUrl> ParseServerUrl(std::string_view text);

// The end of an exchange.
struct HttpEnd {
  int status = 0;     // 0: no answer came
  std::string error;  // one phrase; empty: a complete answer with a status of 200 to 299
  int64_t ended_ns = 0;
};

// One request. `on_body` gets the decoded body of a 2xx answer as it arrives, with the time at
// which its bytes were read; `on_end` is called exactly once, last.
struct HttpCall {
  size_t server = 0;  // index of one of the client's servers
  std::string method = "POST";
  std::string path;  // "/v1/completions"
  std::string body;  // JSON
  double timeout_s = 600;
  std::function<void(std::string_view bytes, int64_t arrived_ns)> on_body;
  std::function<void(const HttpEnd& end)> on_end;
};

// HTTP/1.1 from one thread: any number of exchanges at a time, with one server or several, over
// kept-alive connections, and the clock that starts them. All callbacks run on the thread
// that calls Run. Only this file's .cc and http_answer's use Boost.
class HttpClient {
 public:
  // Resolves the hosts' addresses; `api_key` is sent as a bearer token unless it is empty. Errors
  // (kNotFound): an unknown host.
  static Result<std::unique_ptr<HttpClient>> Make(const std::vector<ServerUrl>& urls,
                                                  std::string api_key = "");
  virtual ~HttpClient() = default;

  virtual void Start(HttpCall call) = 0;
  // Calls back at a time of CLOCK_MONOTONIC, at once if it has passed.
  virtual void At(int64_t when_ns, std::function<void()> callback) = 0;
  // Closes every connection: running exchanges end with the error "cut off". At's callbacks stay.
  virtual void CutOff() = 0;
  // Cancels all pending callbacks of At.
  virtual void CancelTimers() = 0;
  // Runs until there is nothing left to wait for.
  virtual void Run() = 0;
};

// One exchange; waits for its end. The error is one sentence with the URL.
Result<std::string> HttpFetch(const ServerUrl& url, const std::string& method,
                              const std::string& path, const std::string& body, double timeout_s,
                              const std::string& api_key = "");

}  // namespace pinion::harness
