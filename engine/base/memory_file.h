#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/descriptor.h"
#include "engine/base/result.h"

namespace pinion {

// A file in memory without a name: what a child reads or writes, at whatever pace, where a pipe
// would fill up and block. Move-only.
class MemoryFile {
 public:
  // `what` it is for, as /proc/PID/fd shows it and errors (kIo) say.
  static Result<MemoryFile> Make(const std::string& what);

  int fd() const { return fd_.get(); }  // closed in children unless passed on
  // At its beginning, where the descriptor then stands: a child may read it as its input.
  Status Write(std::string_view text);
  // All of it, wherever the descriptor stands. Refuses more than `max_bytes`.
  Result<std::string> Text(uint64_t max_bytes) const;

 private:
  MemoryFile(Descriptor fd, std::string what) : fd_(std::move(fd)), what_(std::move(what)) {}
  Descriptor fd_;
  std::string what_;
};

}  // namespace pinion
