#include "harness/probe/plan.h"

#include <algorithm>

#include "kernels/probe.h"

namespace pinion::harness {

std::vector<size_t> ThreadCounts(size_t most) {
  constexpr size_t kEach = 8;
  std::vector<size_t> counts;
  for (size_t n = 1; n <= most; n = n < kEach ? n + 1 : 2 * n) counts.push_back(n);
  if (!counts.empty() && counts.back() != most) counts.push_back(most);
  return counts;
}

std::vector<std::pair<int, int>> Pairs(const std::vector<int>& cpus, size_t most) {
  std::vector<std::pair<int, int>> pairs;
  const size_t n = cpus.size();
  const bool all = n < 2 || n * (n - 1) / 2 <= most;
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i + 1; j < n; ++j)
      if (all || i == 0 || j == i + 1) pairs.emplace_back(cpus[i], cpus[j]);
  if (pairs.size() <= most) return pairs;
  std::vector<std::pair<int, int>> kept;
  for (size_t i = 0; i < most; ++i) kept.push_back(pairs[i * pairs.size() / most]);
  return kept;
}

std::vector<std::vector<size_t>> PartsOfThreads(const std::vector<int>& node_of_thread,
                                                const std::vector<int>& node_of_part) {
  std::vector<std::vector<size_t>> parts_of_thread(node_of_thread.size());
  for (size_t part = 0; part < node_of_part.size(); ++part) {
    std::vector<size_t>* least = nullptr;  // of the node's threads, the first with the fewest
    for (size_t t = 0; t < node_of_thread.size(); ++t) {
      if (node_of_thread[t] != node_of_part[part]) continue;
      if (!least || parts_of_thread[t].size() < least->size()) least = &parts_of_thread[t];
    }
    if (least) least->push_back(part);
  }
  return parts_of_thread;
}

uint64_t CacheReadBytes(const Cache& cache, uint64_t nearer_bytes, const std::vector<int>& cpus) {
  const auto shares = [&](int cpu) {
    return std::find(cache.cpus.begin(), cache.cpus.end(), cpu) != cache.cpus.end();
  };
  const auto sharers = static_cast<uint64_t>(std::count_if(cpus.begin(), cpus.end(), shares));
  const uint64_t bytes = cache.bytes / 2 / std::max<uint64_t>(1, sharers);
  const uint64_t whole = bytes / kernels::kProbeChunk * kernels::kProbeChunk;
  return whole > nearer_bytes ? whole : 0;
}

}  // namespace pinion::harness
