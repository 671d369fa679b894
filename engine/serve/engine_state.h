#pragma once

namespace pinion {

// The engine process as its clients see it.
enum class EngineState {
  kStarting,    // for the first time
  kReady,       // answers requests
  kRestarting,  // ended unexpectedly; another one is being started
  kSleeping,    // ended by /sleep; /wake_up starts another one
  kFailed,      // ended too often: the server ends as well
};

}  // namespace pinion
