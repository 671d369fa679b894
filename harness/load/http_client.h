#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/result.h"
#include "harness/load/server_url.h"

namespace pinion::harness {

// How a server is reached. Proxies are those of the environment (http_proxy, https_proxy,
// all_proxy, no_proxy), except for servers of this machine, which are always asked directly.
struct HttpAccess {
  std::string api_key;  // sent as a bearer token; empty: none
  std::string ca_file;  // PEM, of the authorities that may sign certificates; empty: the system's
  bool verify = true;   // false: HTTPS takes any certificate
};

// The end of an exchange.
struct HttpEnd {
  int status = 0;     // 0: no answer came
  std::string error;  // one phrase; empty: a complete answer with a status of 200 to 299
  int64_t ended_ns = 0;
  std::string refusal = {};  // the body of an answer with another status, its first 4 KiB
};

// One request. `on_body` gets the decoded body of a 2xx answer as it arrives, with the time at
// which its bytes were handed over; `on_end` is called exactly once, last.
struct HttpCall {
  std::string path;  // "/v1/completions"
  std::string body;  // JSON, to POST; empty: GET
  double timeout_s = 600;
  std::function<void(std::string_view bytes, int64_t arrived_ns)> on_body;
  std::function<void(const HttpEnd& end)> on_end;
};

// HTTP/1.1 from one thread: any number of exchanges at a time with one server, over kept-alive
// connections, and the clock that starts them. All callbacks run on the thread that
// calls Run. Newer versions would put all exchanges on one connection, where they wait for each
// other. Only this file's .cc and server_url's use libcurl.
class HttpClient {
 public:
  // Errors (kFailed): no descriptors or memory left.
  static Result<std::unique_ptr<HttpClient>> Make(const ServerUrl& url, const HttpAccess& access);
  virtual ~HttpClient() = default;

  virtual void Start(HttpCall call) = 0;
  // Calls back at a time of CLOCK_MONOTONIC, at once if it has passed.
  virtual void At(int64_t when_ns, std::function<void()> callback) = 0;
  // Ends running exchanges and their connections, with the error "cut off". At's callbacks stay.
  virtual void CutOff() = 0;
  // Cancels all pending callbacks of At.
  virtual void CancelTimers() = 0;
  // Runs until there is nothing left to wait for.
  virtual void Run() = 0;
};

// The answer to one GET; waits for its end. The error is one sentence with the URL; kNotFound: 404.
Result<std::string> HttpFetch(const ServerUrl& url, const std::string& path, double timeout_s,
                              const HttpAccess& access = {});

}  // namespace pinion::harness
