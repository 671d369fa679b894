#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace pinion {

// The limit of a file of settings, such as config.json. The largest published ones, which list
// exceptions for each layer, are below 1 MiB; vocabularies and indices of weights may be larger.
inline constexpr uint64_t kMaxSettingsBytes = 64 << 20;

// Reads a whole file; the error names it. Refuses files above `max_bytes`, of which a device may
// have no end, and a FIFO without a writer.
Result<std::string> ReadFile(const std::string& path, uint64_t max_bytes = uint64_t{1} << 30);

// Writes a temporary file in the same folder and renames it, so readers see all of it or nothing.
Status WriteFile(const std::string& path, std::string_view text);

// Whether WriteFile could write to `path`, so that a misspelt folder does not cost hours of work.
// Nothing is left behind; the disk may still fill up later.
Status CheckWritable(const std::string& path);

// TMPDIR, else /tmp.
std::string TemporaryFolder();

// An open file without a name in TemporaryFolder(): it disappears with its owner, and nothing is
// left behind however the process ends. Move-only.
class TemporaryFile {
 public:
  // `purpose` appears in errors (kIo), which also name the folder and TMPDIR.
  static Result<TemporaryFile> Make(std::string_view purpose);
  TemporaryFile(TemporaryFile&& other) noexcept;
  TemporaryFile& operator=(TemporaryFile&& other) noexcept;
  ~TemporaryFile();

  int fd() const { return fd_; }  // for reading and writing; closed in children unless passed on
  std::string path() const;       // a path for opening it again, valid only in this process
  // Writes at the beginning and rewinds, so that a child can read the file as its input.
  Status Write(std::string_view text);

 private:
  explicit TemporaryFile(int fd) : fd_(fd) {}
  int fd_;
};

// A regular file mapped read-only; a FIFO or a device is refused without waiting. Pages are read on
// first touch and can be given back. Thread rule: any number of readers. A file that another
// process truncates while it is mapped raises SIGBUS, as with every mapping.
class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  const std::string& path() const { return path_; }

  // Lets the kernel drop the resident pages that lie wholly inside [offset, offset + bytes): they
  // have been packed and will hardly be read again.
  void Release(size_t offset, size_t bytes) const;

 private:
  MappedFile(std::string path, const std::byte* data, size_t size_bytes);
  std::string path_;
  const std::byte* data_;
  size_t size_bytes_;
};

}  // namespace pinion
