#pragma once

#include <initializer_list>

namespace pinion::harness {

// For commands that check between pieces of work whether to stop. (Interruption is
// for commands that compute without such checks.)

// From now on the first of `signals` is only recorded; with `second_ends`, a second one of its
// kind ends the process at once.
void CatchStopRequests(std::initializer_list<int> signals, bool second_ends = true);

bool StopRequested();

}  // namespace pinion::harness
