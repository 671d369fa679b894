#include "engine/serve/access_log.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

constexpr size_t kMaxQueuedBytes = 4 << 20;
constexpr double kLastSeconds = 1;

int64_t UnixNs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

// "2026-03-01T12:34:56.789Z"
std::string TimeText(int64_t time_ns) {
  const time_t seconds = time_ns / 1'000'000'000;
  tm utc;
  gmtime_r(&seconds, &utc);
  char text[32], whole[48];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(whole, sizeof whole, "%s.%03dZ", text,
                static_cast<int>(time_ns / 1'000'000 % 1000));
  return whole;
}

}  // namespace

std::string AccessLine(const AccessRecord& record, int64_t time_ns) {
  constexpr size_t kLongestPath = 200, kLongestMethod = 20;
  Json line = Json::MakeObject();
  line.Set("time", TimeText(time_ns));
  line.Set("id", record.id);
  line.Set("client", record.client);
  line.Set("method", record.method.substr(0, kLongestMethod));
  line.Set("path", record.path.substr(0, kLongestPath));
  line.Set("status", record.status);
  line.Set("bytes_in", static_cast<int64_t>(record.bytes_in));
  line.Set("bytes_out", static_cast<int64_t>(record.bytes_out));
  line.Set("seconds", static_cast<double>(static_cast<int64_t>(record.seconds * 1e6)) / 1e6);
  line.Set("complete", record.complete);
  return line.Dump() + "\n";
}

Result<std::unique_ptr<AccessLog>> AccessLog::Open(const std::string& path) {
  if (path == "-") return std::make_unique<AccessLog>(STDOUT_FILENO);
  // Nobody but the server's own user: addresses of clients are in it.
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
  if (fd < 0)
    return Fail(ErrorCode::kUsage, StrCat("cannot open the access log ", path, ": ",
                                          std::strerror(errno), " (--access-log)"));
  return std::make_unique<AccessLog>(fd);
}

AccessLog::AccessLog(int fd) : fd_(fd) {
  // Signals go to the event loop's thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  writer_ = std::thread([this] { WriteLines(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

AccessLog::~AccessLog() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    closing_ns_ = NowNs();
  }
  changed_.notify_one();
  writer_.join();
  if (fd_ != STDOUT_FILENO) close(fd_);
}

void AccessLog::Add(const AccessRecord& record) {
  const std::string line = AccessLine(record, UnixNs());
  {
    const std::lock_guard lock(mutex_);
    if (queue_.size() + line.size() > kMaxQueuedBytes) {
      ++dropped_;
      return;
    }
    queue_ += line;
  }
  changed_.notify_one();
}

void AccessLog::WriteLines() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::string text = std::exchange(queue_, {});
    if (const uint64_t dropped = std::exchange(dropped_, 0); dropped > 0)
      text += StrCat("{\"time\":\"", TimeText(UnixNs()), "\",\"dropped\":", dropped, "}\n");
    lock.unlock();
    const bool written = Write(text);
    lock.lock();
    if (!written) return;
  }
}

// In pieces that a pipe takes at once if it takes anything: a blocked write would hold up the end
// of the server.
bool AccessLog::Write(std::string_view text) {
  while (!text.empty()) {
    pollfd wait{fd_, POLLOUT, 0};
    if (poll(&wait, 1, 100) > 0) {
      const ssize_t count = write(fd_, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
      if (count > 0) text.remove_prefix(static_cast<size_t>(count));
      // A full disk or a reader that has gone: these lines are lost, later ones may not be.
      if (count < 0 && errno != EINTR && errno != EAGAIN) return true;
    }
    const std::lock_guard lock(mutex_);
    if (closing_ && SecondsSince(closing_ns_) > kLastSeconds) return false;
  }
  return true;
}

}  // namespace pinion
