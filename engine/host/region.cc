#include "engine/host/region.h"

#include <omp.h>

#include <thread>
#include <vector>

namespace pinion {

#ifdef __SANITIZE_THREAD__

// ThreadSanitizer does not see the futexes with which GCC's OpenMP runtime synchronises and would
// report data passed into or out of a region as a race. It does understand std::thread.
void RunRegion(int threads, const std::function<void(int, int)>& body) {
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(body, thread, threads);
  body(0, threads);
  for (std::thread& other : others) other.join();
}

#else

void RunRegion(int threads, const std::function<void(int, int)>& body) {
  omp_set_dynamic(0);  // OMP_DYNAMIC may shrink teams; the setting belongs to the calling thread
#pragma omp parallel num_threads(threads)
  body(omp_get_thread_num(), omp_get_num_threads());
}

#endif

}  // namespace pinion
