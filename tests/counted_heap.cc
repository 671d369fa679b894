#include "tests/counted_heap.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> held_bytes{0}, peak_bytes{0};

void* Count(void* memory) {
  if (!memory) return memory;
  const size_t now = held_bytes += malloc_usable_size(memory);
  size_t peak = peak_bytes;
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now)) {
  }
  return memory;
}

}  // namespace

void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return Count(std::malloc(bytes));
}
void* operator new[](size_t bytes, const std::nothrow_t& nothrow) noexcept {
  return operator new(bytes, nothrow);
}
void* operator new(size_t bytes) {
  void* memory = operator new(bytes, std::nothrow);
  if (!memory) throw std::bad_alloc();
  return memory;
}
void* operator new[](size_t bytes) { return operator new(bytes); }
void operator delete(void* memory) noexcept {
  held_bytes -= malloc_usable_size(memory);
  std::free(memory);
}
void operator delete[](void* memory) noexcept { operator delete(memory); }
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }
void operator delete[](void* memory, size_t) noexcept { operator delete(memory); }

namespace pinion::tests {

size_t HeapPeak() { return peak_bytes; }

size_t ResetHeapPeak() {
  peak_bytes = held_bytes.load();
  return peak_bytes;
}

}  // namespace pinion::tests
