#pragma once

#include <initializer_list>

namespace pinion::harness {

// For commands that look, between pieces of work, whether they shall end in order. (Interruption is
// for those that compute without looking.)

// From now on the first of `signals` is only remembered; with `second_ends`, another one of its
// kind ends the process at once.
void CatchStopRequests(std::initializer_list<int> signals, bool second_ends = true);

bool StopRequested();

}  // namespace pinion::harness
