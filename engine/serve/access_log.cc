#include "engine/serve/access_log.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
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
#include "engine/base/log.h"
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

// Below 0: errno says why.
int OpenFile(const std::string& path) {
  // A FIFO that is opened for writing alone waits for its reader, and gives an error when that
  // goes.
  struct stat file;
  const bool is_fifo = stat(path.c_str(), &file) == 0 && S_ISFIFO(file.st_mode);
  // Nobody but the server's own user: addresses of clients are in it.
  return open(path.c_str(), (is_fifo ? O_RDWR : O_WRONLY) | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
}

}  // namespace

std::string AccessLine(const AccessRecord& record, int64_t time_ns) {
  constexpr size_t kLongestPath = 200, kLongestMethod = 20;
  Json line = Json::MakeObject();
  line.Set("time", TimeText(time_ns));
  line.Set("id", record.id);
  line.Set("client", record.client);
  line.Set("address", record.address);
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
  const int fd = OpenFile(path);
  if (fd < 0)
    return Fail(ErrorCode::kUsage, StrCat("cannot open the access log ", path, ": ",
                                          std::strerror(errno), " (--access-log)"));
  return std::unique_ptr<AccessLog>(new AccessLog(fd, path));
}

AccessLog::AccessLog(int fd) : AccessLog(fd, "") {}

AccessLog::AccessLog(int fd, std::string path) : fd_(fd), path_(std::move(path)) {
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

void AccessLog::FollowName() {
  {
    const std::lock_guard lock(mutex_);
    follow_ = true;
  }
  changed_.notify_one();
}

uint64_t AccessLog::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

void AccessLog::WriteLines() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || follow_ || !queue_.empty(); });
    if (queue_.empty() && !std::exchange(follow_, false)) return;
    const std::string lines = std::exchange(queue_, {});
    const uint64_t dropped = std::exchange(dropped_, 0);
    lock.unlock();
    OpenByName();
    std::string text = torn_ && (dropped > 0 || !lines.empty()) ? "\n" : "";
    if (dropped > 0)
      text += StrCat("{\"time\":\"", TimeText(UnixNs()), "\",\"dropped\":", dropped, "}\n");
    const size_t before = text.size();
    text += lines;
    const size_t written = Write(text);
    if (written > 0) torn_ = text[written - 1] != '\n';
    const auto lost = std::count(text.begin() + static_cast<ptrdiff_t>(std::max(before, written)),
                                 text.end(), '\n');
    lock.lock();
    dropped_ += static_cast<uint64_t>(lost) + (written < before ? dropped : 0);
  }
}

// After logs are rotated, the name stands for another file, or none. While it cannot be opened,
// lines go where they went.
void AccessLog::OpenByName() {
  if (path_.empty()) return;
  struct stat named, ours;
  const bool same = stat(path_.c_str(), &named) == 0 && fstat(fd_, &ours) == 0 &&
                    named.st_dev == ours.st_dev && named.st_ino == ours.st_ino;
  if (same) return;
  const int fd = OpenFile(path_);
  if (fd < 0) return WarnOfLoss(errno);
  close(std::exchange(fd_, fd));
  torn_ = false;
}

// In pieces that a pipe takes at once if it takes anything: a blocked write would hold up the end
// of the server.
size_t AccessLog::Write(std::string_view text) {
  size_t written = 0;
  while (written < text.size()) {
    pollfd wait{fd_, POLLOUT, 0};
    if (poll(&wait, 1, 100) > 0) {
      const size_t piece = std::min<size_t>(text.size() - written, PIPE_BUF);
      const ssize_t count = write(fd_, text.data() + written, piece);
      if (count > 0) written += static_cast<size_t>(count);
      // A full disk or a reader that has gone: these lines are lost, later ones may not be.
      if (count < 0 && errno != EINTR && errno != EAGAIN) {
        WarnOfLoss(errno);
        return written;
      }
    }
    const std::lock_guard lock(mutex_);
    if (closing_ && SecondsSince(closing_ns_) > kLastSeconds) return written;
  }
  warned_ = false;
  return written;
}

void AccessLog::WarnOfLoss(int reason) {
  if (!std::exchange(warned_, true))
    LogWarning(StrCat("cannot write the access log ", path_, ": ", std::strerror(reason)));
}

}  // namespace pinion
