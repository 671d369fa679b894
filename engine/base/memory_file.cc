#include "engine/base/memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/base/strings.h"

namespace pinion {
namespace {

tl::unexpected<Error> SystemError(const char* doing, const std::string& what) {
  return Fail(ErrorCode::kIo,
              StrCat("cannot ", doing, " a file in memory for ", what, ": ", std::strerror(errno)));
}

}  // namespace

Result<MemoryFile> MemoryFile::Make(const std::string& what) {
  Descriptor fd(memfd_create(what.c_str(), MFD_CLOEXEC));
  if (!fd.is_open()) return SystemError("make", what);
  return MemoryFile(std::move(fd), what);
}

Status MemoryFile::Write(std::string_view text) {
  if (lseek(fd(), 0, SEEK_SET) != 0 || !WriteAll(fd(), text) || lseek(fd(), 0, SEEK_SET) != 0)
    return SystemError("write", what_);
  return {};
}

Result<std::string> MemoryFile::Text(uint64_t max_bytes) const {
  const off_t size = lseek(fd(), 0, SEEK_END);
  if (size < 0) return SystemError("read", what_);
  if (static_cast<uint64_t>(size) > max_bytes)
    return Fail(ErrorCode::kExhausted, StrCat(what_, " is larger than ", FormatBytes(max_bytes)));
  std::string text(static_cast<size_t>(size), '\0');
  for (size_t at = 0; at < text.size();) {
    const ssize_t got = pread(fd(), text.data() + at, text.size() - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return SystemError("read", what_);
    at += static_cast<size_t>(got);
  }
  return text;
}

}  // namespace pinion
