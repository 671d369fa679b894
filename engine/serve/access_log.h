#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "engine/base/result.h"
#include "engine/serve/http.h"

namespace pinion {

// One JSON line per finished exchange, without any text of the client's but the path: no body, no
// query. A thread of its own writes, since a full disk or pipe must not hold up the event loop:
// lines that find the queue full are dropped, and a line says how many.
class AccessLog {
 public:
  // `path`: appended to, "-" for standard output.
  static Result<std::unique_ptr<AccessLog>> Open(const std::string& path);
  // Takes over `fd`, unless it is standard output.
  explicit AccessLog(int fd);
  // Writes what is queued, if that takes no longer than a second.
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // Any thread.
  void Add(const AccessRecord& record);

 private:
  void WriteLines();
  // False: the log is being closed and does not accept more.
  bool Write(std::string_view text);

  const int fd_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string queue_;
  uint64_t dropped_ = 0;
  bool closing_ = false;
  int64_t closing_ns_ = 0;
  std::thread writer_;
};

// The line of one exchange, with its end of line. `time_ns`: since 1970.
std::string AccessLine(const AccessRecord& record, int64_t time_ns);

}  // namespace pinion
