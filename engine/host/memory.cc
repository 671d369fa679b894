#include "engine/host/memory.h"

#include <numaif.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>

#include "engine/base/strings.h"
#include "engine/host/huge_pages.h"

namespace pinion {
namespace {

constexpr size_t kMaxSampledPages = 4096;

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t RoundUp(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

// Anonymous memory at a multiple of `alignment`: maps more than needed and unmaps the excess on
// both sides.
void* MapAligned(size_t bytes, size_t alignment) {
  bytes = RoundUp(bytes, PageBytes());
  const size_t slack = alignment - PageBytes();
  void* data =
      mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return data;
  const auto mapped = reinterpret_cast<uintptr_t>(data);
  const size_t before = RoundUp(mapped, alignment) - mapped;
  std::byte* const begin = static_cast<std::byte*>(data) + before;
  if (before > 0) munmap(data, before);
  if (before < slack) munmap(begin + bytes, slack - before);
  return begin;
}

// Automatic NUMA balancing would unmap these pages now and then, to see which thread asks for them,
// and move them; each is already on the node of the threads that read it. Pages that it has just
// unmapped are also hidden from NodesOf by Linux 6.1 to 6.5. A policy that the process has
// (numactl) stands; a refusal, as in some containers, changes nothing.
void ExemptFromBalancing(void* data, size_t bytes) {
  int policy = MPOL_DEFAULT;
  if (get_mempolicy(&policy, nullptr, 0, nullptr, 0) == 0 && policy == MPOL_DEFAULT)
    mbind(data, bytes, MPOL_LOCAL, nullptr, 0, 0);
}

// MADV_POPULATE_READ of Linux 5.14, which older headers lack. An older kernel refuses it, and pages
// are mapped when they are first read.
constexpr int kPopulateRead = 22;

void* MapAligned(size_t bytes) {
  return MapAligned(bytes, bytes < kHugePageBytes ? PageBytes() : kHugePageBytes);
}

tl::unexpected<Error> CannotAllocate(size_t bytes) {
  return Fail(ErrorCode::kExhausted, StrCat("cannot allocate ", FormatBytes(bytes), " (", bytes,
                                            " bytes) of memory: ", std::strerror(errno),
                                            "; ask for less KV-cache space or a smaller model"));
}

// The placement of pages that were never touched.
void Advise(void* data, size_t bytes, const MemoryPolicy& policy) {
  // Huge pages mean fewer TLB misses; if the kernel has none, the advice costs nothing.
  if (bytes >= kHugePageBytes) madvise(data, bytes, HugePageAdvice());
  if (policy.mode == MemoryMode::kLocal)
    ExemptFromBalancing(data, bytes);
  else
    SetPolicy(data, bytes, policy);  // which also exempts them
}

}  // namespace

Result<Pages> Pages::Allocate(size_t bytes, const MemoryPolicy& policy) {
  Pages pages;
  if (bytes == 0) return pages;
  void* data = MapAligned(bytes);
  if (data == MAP_FAILED) return CannotAllocate(bytes);
  Advise(data, bytes, policy);
  pages.data_ = static_cast<std::byte*>(data);
  pages.bytes_ = bytes;
  return pages;
}

Result<Pages> Pages::Map(int fd, uint64_t offset, size_t bytes, Access access,
                         const MemoryPolicy& policy) {
  PINION_ASSIGN(Pages pages, Allocate(bytes));  // its addresses, which the file then takes
  if (bytes == 0) return pages;
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  if (mmap(pages.data_, bytes, protection, MAP_SHARED | MAP_FIXED, fd,
           static_cast<off_t>(offset)) == MAP_FAILED)
    return CannotAllocate(bytes);
  Advise(pages.data_, bytes, policy);
  if (access == Access::kRead) madvise(pages.data_, bytes, kPopulateRead);
  return pages;
}

void Pages::MakeReadOnly() const {
  if (data_) mprotect(data_, bytes_, PROT_READ);
}

Pages& Pages::operator=(Pages&& other) noexcept {
  if (this != &other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    Pages dropped(std::move(other));  // what this one held before
  }
  return *this;
}

Pages::~Pages() {
  if (data_) munmap(data_, bytes_);
}

void TouchPages(std::byte* data, size_t bytes) {
  if (bytes == 0) return;
  const auto touch = [](volatile std::byte* byte) { *byte = *byte; };
  for (size_t i = 0; i < bytes; i += PageBytes()) touch(data + i);
  touch(data + bytes - 1);  // data need not begin with a page
}

const MovePages kMovePages = move_pages;

MemoryNodes NodesOf(const void* data, size_t bytes, MovePages ask) {
  if (bytes == 0) return {};
  const auto begin = reinterpret_cast<uintptr_t>(data) / PageBytes() * PageBytes();
  const auto end = reinterpret_cast<uintptr_t>(data) + bytes;
  const size_t page_count = (end - begin + PageBytes() - 1) / PageBytes();
  const size_t samples = std::min(page_count, kMaxSampledPages);
  std::vector<void*> pages(samples);
  std::vector<int> where(samples, -1);
  for (size_t i = 0; i < samples; ++i)
    pages[i] = reinterpret_cast<void*>(  // NOLINT(*-no-int-to-ptr): a page before data, maybe
        begin + page_count * i / samples * PageBytes());
  // Without a list of target nodes the call only reports where each page lies.
  if (ask(0, samples, pages.data(), nullptr, where.data(), 0) != 0)
    return {{}, StrCat("the kernel refuses move_pages (", std::strerror(errno), ")")};
  std::map<int, uint64_t> bytes_of_node;
  for (size_t i = 0; i < samples; ++i) {
    if (where[i] < 0) continue;  // -ENOENT: not touched yet
    bytes_of_node[where[i]] += bytes * (i + 1) / samples - bytes * i / samples;
  }
  return {{bytes_of_node.begin(), bytes_of_node.end()}, ""};
}

}  // namespace pinion
