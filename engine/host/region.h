#pragma once

#include <functional>

namespace pinion {

// Runs body(thread, given) at once on each thread of a team and returns when all have returned: one
// parallel region of OpenMP. The caller is thread 0; `given` is the size of the team, which is less
// than the `threads` wanted if the environment limits OpenMP. body must not throw.
void RunRegion(int threads, const std::function<void(int thread, int given)>& body);

}  // namespace pinion
