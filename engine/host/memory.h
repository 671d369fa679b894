#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/host/memory_policy.h"

namespace pinion {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Zeroed memory straight from the kernel, anonymous or of a file in memory; each page is placed on
// the NUMA node of the thread that touches it first, and stays there unless `policy`, or a policy
// of the process or the system, decides otherwise. Move-only owner. Page aligned; from
// kHugePageBytes on aligned to huge pages, which are requested unless RuntimeChoice says otherwise.
class Pages {
 public:
  Pages() = default;
  // 0 bytes: empty, data() == nullptr. A policy that the kernel refuses changes nothing (Grant).
  static Result<Pages> Allocate(size_t bytes, const MemoryPolicy& policy = {});
  // The same of [offset, offset + bytes) of a file in memory (memfd): all processes that map it see
  // the same pages. offset: a multiple of kHugePageBytes. Readers get all of them at once, so that
  // they must have been written.
  enum class Access { kRead, kWrite };
  static Result<Pages> Map(int fd, uint64_t offset, size_t bytes, Access access,
                           const MemoryPolicy& policy = {});
  Pages(Pages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Pages& operator=(Pages&& other) noexcept;
  ~Pages();

  std::byte* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  size_t size_bytes() const { return bytes_; }
  // From now on a write is a SIGSEGV.
  void MakeReadOnly() const;

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Makes [data, data + bytes) resident without changing it: pages that were never written come to
// lie on the NUMA node of the calling thread. No other thread may write there meanwhile.
void TouchPages(std::byte* data, size_t bytes);

// The NUMA nodes of resident memory: {node, bytes} pairs, ascending by node. Memory that was never
// written is on none.
struct MemoryNodes {
  std::vector<std::pair<int, uint64_t>> bytes_of_node;
  std::string unknown;  // why the nodes are unknown: "the kernel refuses move_pages (...)"; or ""
};

// move_pages(2), or a test's stand-in: 0, or -1 and errno.
using MovePages = long (*)(int pid, unsigned long count, void** pages, const int* nodes,
                           int* status, int flags);
extern const MovePages kMovePages;

// Of [data, data + bytes), from a sample of at most 4096 pages (move_pages in query mode).
MemoryNodes NodesOf(const void* data, size_t bytes, MovePages ask = kMovePages);

struct RankPlacement {
  MemoryNodes weights, kv, workspace;
};

}  // namespace pinion
