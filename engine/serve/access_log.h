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
// lines that find the queue full, or that cannot be written, are dropped, and a line says how many.
// Once its file is renamed or deleted, as when logs are rotated, the next lines go to a new one.
class AccessLog {
 public:
  // `path`: appended to, "-" for standard output. A FIFO need not have a reader yet.
  static Result<std::unique_ptr<AccessLog>> Open(const std::string& path);
  // Takes over `fd`, unless it is standard output.
  explicit AccessLog(int fd);
  // Writes what is queued, if that takes no longer than a second.
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // Any thread.
  void Add(const AccessRecord& record);
  // Looks at once for a file that was renamed, without waiting for the next line. Any thread.
  void FollowName();
  // Lines that were lost and that no line has told of yet. Any thread.
  uint64_t dropped() const;

 private:
  AccessLog(int fd, std::string path);
  void WriteLines();
  void OpenByName();
  // How many bytes of `text` were written: fewer if the file does not take them, or if the log is
  // being closed.
  size_t Write(std::string_view text);
  void WarnOfLoss(int reason);

  // The writer's until it has ended.
  int fd_;
  bool warned_ = false, torn_ = false;  // torn_: the last line was not written to its end

  const std::string path_;  // empty: not followed
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string queue_;
  uint64_t dropped_ = 0;
  bool follow_ = false, closing_ = false;
  int64_t closing_ns_ = 0;
  std::thread writer_;
};

// The line of one exchange, with its end of line. `time_ns`: since 1970.
std::string AccessLine(const AccessRecord& record, int64_t time_ns);

}  // namespace pinion
