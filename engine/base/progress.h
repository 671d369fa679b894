#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/base/memory_file.h"
#include "engine/base/result.h"

namespace pinion {

// A sign of life for the process that watches this one. Counts change as long as work goes on; they
// lie in a file that both processes have, so the watcher need not wait until this one has the time
// to answer.
namespace progress {

namespace internal {
// Each thread counts in a cache line of its own; from the 65th thread on they share.
struct alignas(64) Count {
  std::atomic<uint64_t> value{0};
};
using Counts = std::array<Count, 64>;
inline Counts own_counts;
inline std::atomic<Counts*> counts{&own_counts};
inline std::atomic<uint32_t> threads{0};
}  // namespace internal

// A piece of work is done, such as a chunk of a matrix product or of the weights. Costs a few
// nanoseconds. Any thread.
inline void Advance() {
  thread_local const uint32_t own = internal::threads.fetch_add(1, std::memory_order_relaxed);
  auto& value = (*internal::counts.load(std::memory_order_relaxed))[own % 64].value;
  // Threads that share a count may lose one of two: it changes all the same.
  value.store(value.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// The watcher's part: a file to pass to the process, and whether anything was done since. Two equal
// results: nothing was.
Result<MemoryFile> MakeCounts();
uint64_t ReadCounts(const MemoryFile& counts);

// The watched process's part: from now on it counts in this file. Errors: `fd` is not such a file.
Status CountIn(int fd);

}  // namespace progress
}  // namespace pinion
