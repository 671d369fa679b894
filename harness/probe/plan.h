#pragma once

// Chooses the measurements of a machine, from its topology alone.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/host/caches.h"

namespace pinion::harness {

// Numbers of threads to measure: all of them up to 8, then the powers of two and `most`.
std::vector<size_t> ThreadCounts(size_t most);

// Pairs of CPUs whose distance to measure: all of them if they are at most `most`, else the first
// CPU with every other one and neighbours with each other, evenly thinned out.
std::vector<std::pair<int, int>> Pairs(const std::vector<int>& cpus, size_t most);

// Which parts of an arena each of `threads` threads reads: part i lies on node_of_part[i]. Thread t
// runs on node_of_thread[t] and reads its share of that node's parts.
std::vector<std::vector<size_t>> PartsOfThreads(const std::vector<int>& node_of_thread,
                                                const std::vector<int>& node_of_part);

// Bytes that each of the threads on `cpus` may read so that this cache, and no nearer one, serves
// them: half of the cache, divided by the threads that share it. 0 if that would fit
// `nearer_bytes`.
uint64_t CacheReadBytes(const Cache& cache, uint64_t nearer_bytes, const std::vector<int>& cpus);

}  // namespace pinion::harness
