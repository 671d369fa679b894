#include "engine/base/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "engine/base/descriptor.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

constexpr size_t kPageBytes = 4096;

tl::unexpected<Error> SystemError(std::string_view doing, const std::string& path) {
  const int code = errno;
  return Fail(code == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
              StrCat("cannot ", doing, " '", path, "': ", std::strerror(code)));
}

Result<size_t> RegularSize(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return SystemError("stat", path);
  if (!S_ISREG(info.st_mode))
    return Fail(ErrorCode::kIo, StrCat("'", path, "' is not a regular file"));
  return static_cast<size_t>(info.st_size);
}

tl::unexpected<Error> TooLarge(const std::string& path, uint64_t max_bytes) {
  return Fail(ErrorCode::kIo,
              StrCat("'", path, "' is larger than ", FormatBytes(max_bytes), ", the limit here"));
}

Status WriteText(int fd, std::string_view text, const std::string& path) {
  if (!WriteAll(fd, text)) return SystemError("write", path);
  return {};
}

// A device, pipe or socket: written to, never replaced.
bool IsSpecial(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
}

std::string TemporaryFor(const std::string& path) { return StrCat(path, ".tmp", getpid()); }

Status WriteInPlace(const std::string& path, std::string_view text) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0) return SystemError("open", path);
  return WriteText(file.get(), text, path);
}

bool WaitForInput(int fd, int milliseconds) {
  pollfd wait{fd, POLLIN, 0};
  return poll(&wait, 1, milliseconds) > 0;
}

}  // namespace

Result<std::string> ReadFile(const std::string& path, uint64_t max_bytes) {
  // Without waiting: opening a FIFO would last until somebody writes to it.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return SystemError("open", path);
  struct stat info;
  if (fstat(file.get(), &info) != 0) return SystemError("stat", path);
  if (S_ISDIR(info.st_mode)) return Fail(ErrorCode::kIo, StrCat("'", path, "' is a folder"));
  // Before any of it is read: what is not wanted should cost no memory. Files of sysfs have 4096
  // bytes by their size, whatever is in them, and no blocks.
  if (S_ISREG(info.st_mode) && info.st_blocks > 0 &&
      static_cast<uint64_t>(info.st_size) > max_bytes)
    return TooLarge(path, max_bytes);
  // The writer of a FIFO may be started together with us.
  constexpr int kSoonMilliseconds = 2000;
  bool waits_for_writer = S_ISFIFO(info.st_mode), silent = false;
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t got = read(file.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      WaitForInput(file.get(), -1);
      continue;
    }
    if (got < 0) return SystemError("read", path);
    if (got == 0 && text.empty() && std::exchange(waits_for_writer, false)) {
      silent = !WaitForInput(file.get(), kSoonMilliseconds);
      continue;
    }
    if (got == 0 && text.empty() && silent)
      return Fail(ErrorCode::kIo, StrCat("no process writes to the FIFO '", path, "'"));
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > max_bytes) return TooLarge(path, max_bytes);
  }
}

Status WriteFile(const std::string& path, std::string_view text) {
  if (IsSpecial(path)) return WriteInPlace(path, text);
  const std::string temporary = TemporaryFor(path);
  {
    // Errors name the requested file: the temporary one means nothing to the user.
    const Descriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.get() < 0) return SystemError("create", path);
    if (auto written = WriteText(file.get(), text, path); !written) {
      unlink(temporary.c_str());
      return written;
    }
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    auto failure = SystemError("write", path);
    unlink(temporary.c_str());
    return failure;
  }
  return {};
}

Status CheckWritable(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
    return Fail(ErrorCode::kIo, StrCat("cannot write '", path, "': it is a folder"));
  if (IsSpecial(path)) {  // not opened: that would wait for the reader of a pipe
    if (access(path.c_str(), W_OK) != 0) return SystemError("write", path);
    return {};
  }
  const std::string temporary = TemporaryFor(path);
  const Descriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (file.get() < 0) return SystemError("create", path);
  unlink(temporary.c_str());
  return {};
}

std::string TemporaryFolder() {
  const char* folder = std::getenv("TMPDIR");
  return folder && *folder ? folder : "/tmp";
}

Result<TemporaryFile> TemporaryFile::Make(std::string_view purpose) {
  const std::string folder = TemporaryFolder();
  std::string path = folder + "/pinion-XXXXXX";
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0)
    return Fail(ErrorCode::kIo,
                StrCat("cannot make a temporary file for ", purpose, " in '", folder,
                       "': ", std::strerror(errno), "; set TMPDIR to another folder"));
  unlink(path.c_str());
  return TemporaryFile(fd);
}

TemporaryFile::TemporaryFile(TemporaryFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

TemporaryFile& TemporaryFile::operator=(TemporaryFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

TemporaryFile::~TemporaryFile() {
  if (fd_ >= 0) close(fd_);
}

std::string TemporaryFile::path() const { return StrCat("/proc/self/fd/", fd_); }

Status TemporaryFile::Write(std::string_view text) {
  const std::string name = StrCat("a temporary file in ", TemporaryFolder());
  if (lseek(fd_, 0, SEEK_SET) != 0) return SystemError("rewind", name);
  PINION_TRY(WriteText(fd_, text, name));
  if (lseek(fd_, 0, SEEK_SET) != 0) return SystemError("rewind", name);
  return {};
}

MappedFile::MappedFile(std::string path, const std::byte* data, size_t size_bytes)
    : path_(std::move(path)), data_(data), size_bytes_(size_bytes) {}

MappedFile::~MappedFile() {
  if (size_bytes_ > 0) munmap(const_cast<std::byte*>(data_), size_bytes_);
}

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  // Without waiting: a FIFO is refused below, and opening it would last until somebody writes to
  // it.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return SystemError("open", path);
  PINION_ASSIGN(const size_t bytes, RegularSize(file.get(), path));
  void* data = nullptr;
  if (bytes > 0) {
    data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
    if (data == MAP_FAILED) return SystemError("map", path);
  }
  return std::shared_ptr<const MappedFile>(
      new MappedFile(path, static_cast<const std::byte*>(data), bytes));
}

void MappedFile::Release(size_t offset, size_t bytes) const {
  const size_t begin = (offset + kPageBytes - 1) / kPageBytes * kPageBytes;
  const size_t end = (offset + bytes) / kPageBytes * kPageBytes;
  if (begin >= end || end > size_bytes_) return;
  madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace pinion
