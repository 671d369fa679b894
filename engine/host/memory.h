#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/base/result.h"

namespace pinion {

// What the kernel clears and hands out at a first touch. Huge ones spare TLB misses and faults
// where all of the memory will be used; small ones where it is touched here and there.
enum class PageSize { kHuge, kSmall };

// Anonymous zeroed memory straight from the kernel, page aligned, placed on the NUMA node of
// whichever thread touches each page first. Move-only owner. Huge pages are transparent ones, asked
// for unless RuntimeChoice says otherwise.
class Pages {
 public:
  Pages() = default;
  // 0 bytes: empty, data() == nullptr
  static Result<Pages> Allocate(size_t bytes, PageSize size = PageSize::kHuge);
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

// Where the resident pages of [data, data + bytes) lie: {node, bytes} pairs, ascending by node,
// from a sample of at most 4096 pages (move_pages in query mode). Pages not touched yet are left
// out.
std::vector<std::pair<int, uint64_t>> NodesOf(const void* data, size_t bytes);

}  // namespace pinion
