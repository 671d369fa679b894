#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/descriptor.h"
#include "engine/base/result.h"

namespace pinion {

// An unnamed file in memory for a child's input or output; unlike a pipe, it cannot fill up and
// block either side. Move-only.
class MemoryFile {
 public:
  // `what` names its purpose in /proc/PID/fd and in errors (kIo).
  static Result<MemoryFile> Make(const std::string& what);

  int fd() const { return fd_.get(); }  // closed in children unless passed on
  // Writes at the beginning and rewinds, so that a child can read the file as its input.
  Status Write(std::string_view text);
  // The whole content, whatever the descriptor's offset. Refuses more than `max_bytes`.
  Result<std::string> Text(uint64_t max_bytes) const;

 private:
  MemoryFile(Descriptor fd, std::string what) : fd_(std::move(fd)), what_(std::move(what)) {}
  Descriptor fd_;
  std::string what_;
};

}  // namespace pinion
