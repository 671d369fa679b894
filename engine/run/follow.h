#pragma once

namespace pinion {

// The whole life of a process that follows: loads what the leader loads, computes its ranks' part
// of every step, and returns the exit code when the leader ends. Writes nothing but warnings.
int FollowLeader();

// The last act of a command in a process that leads, before it exits with `code`: lets the others
// go (LeaveWorld). Does nothing in a process that was started alone.
void ReleaseFollowers(int code);

}  // namespace pinion
