#pragma once

#include <cstddef>

#include "engine/serve/memory_budget.h"
#include "engine/serve/prepare.h"

namespace pinion {

// From parsing to answering: gives back what parsing needed, and reserves what a request holds
// until its answer ends, if that is more. `what`: as OutOfMemory's.
ApiResult<void> KeepWhatIsNeeded(MemoryShare& memory, const Prepared& prepared, const char* what);

// Log-probabilities of the prompts' tokens, which each choice of a prompt repeats: the bytes that
// they take once the engine has told them.
size_t PromptLogprobBytes(const Prepared& prepared);

// The bytes that a beam search may hold at its end.
size_t BeamBytes(const Prepared& prepared);

}  // namespace pinion
