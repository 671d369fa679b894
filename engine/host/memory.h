#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/base/result.h"

namespace pinion {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Anonymous zeroed memory straight from the kernel; each page is placed on the NUMA node of the
// thread that touches it first, and stays there unless a policy of the process or the system
// decides otherwise. Move-only owner. Page aligned; from kHugePageBytes on aligned to huge pages,
// which are requested unless RuntimeChoice says otherwise.
class Pages {
 public:
  Pages() = default;
  static Result<Pages> Allocate(size_t bytes);  // 0 bytes: empty, data() == nullptr
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

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Makes [data, data + bytes) resident without changing it: pages that were never written come to
// lie on the NUMA node of the calling thread. No other thread may write there meanwhile.
void TouchPages(std::byte* data, size_t bytes);

// The NUMA nodes of the resident pages of [data, data + bytes): {node, bytes} pairs, ascending by
// node, from a sample of at most 4096 pages (move_pages in query mode). Pages not touched yet are
// not counted.
std::vector<std::pair<int, uint64_t>> NodesOf(const void* data, size_t bytes);

// The NUMA nodes of a rank's memory, each as from NodesOf. KV that was never written is on none.
struct RankPlacement {
  std::vector<std::pair<int, uint64_t>> weights, kv;
};

}  // namespace pinion
