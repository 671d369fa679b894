#pragma once

namespace pinion {

// Ignores signals that say nothing to a server but would end it: SIGHUP when its terminal goes,
// SIGUSR1 or SIGUSR2 from a script that was written for another program, SIGALRM. The programs that
// it starts inherit that.
void IgnoreStraySignals();

// For the engine process: also those that ask a server to stop. They may be sent to all processes
// of a service, but only the front end can end requests in order, and the engine ends with it.
void IgnoreStopSignals();

}  // namespace pinion
