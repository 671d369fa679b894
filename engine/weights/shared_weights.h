#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/memory_file.h"
#include "engine/base/result.h"
#include "engine/host/memory.h"

namespace pinion {

// One copy of the packed weights of several engine processes, in a file in memory that the process
// which starts them makes and each of them inherits. The first to come packs, under a lock that the
// kernel takes away from a process that dies; the others wait until the copy is complete, or pack
// in its place. Afterwards it is never written again. Thread rule: Map from any thread.
class SharedWeights {
 public:
  // Facts that the processes must have in common, so that they do not compute with others' weights.
  struct Layout {
    std::string identity;         // of the packed bytes: equal for equal bytes
    std::vector<uint64_t> bytes;  // of each rank of the process
  };

  static Result<MemoryFile> MakeFile() { return MemoryFile::Make("weights"); }
  // Gives the memory back; a process that maps it must have ended.
  static void Clear(const MemoryFile& file);
  // That the file takes now.
  static uint64_t ResidentBytes(int fd);

  // Waits for a process that is packing. `fd` stays the caller's, and open. Errors: kUnsupported if
  // the file holds another layout, kIo and kExhausted if there is no memory for a file.
  static Result<SharedWeights> Join(int fd, const Layout& layout);
  SharedWeights(SharedWeights&& other) noexcept;
  SharedWeights& operator=(SharedWeights&&) = delete;
  ~SharedWeights();

  // Whether another process has packed them; else this one does, and then calls Finish.
  bool packed() const { return !packs_; }
  Result<Pages> Map(size_t rank, const MemoryPolicy& policy) const;
  // The packed weights are complete: others may read them.
  Status Finish();

 private:
  SharedWeights(int fd, const Layout& layout);
  Status Prepare() const;
  uint64_t file_bytes() const { return offsets_.back(); }

  int fd_;  // -1: moved away
  bool packs_ = false;
  std::string identity_;
  std::vector<uint64_t> bytes_;
  std::vector<uint64_t> offsets_;  // of each rank, and the file's end
};

// The part of it that the ranks of one stage have: from rank `first` on. Null: they have memory of
// their own.
struct SharedShards {
  const SharedWeights* all = nullptr;
  size_t first = 0;
};

}  // namespace pinion
