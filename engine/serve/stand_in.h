#pragma once

#include <memory>

#include "engine/base/clock.h"
#include "engine/base/result.h"
#include "engine/run/engine.h"

namespace pinion {

// An engine without weights, to measure and test all that surrounds one. A step takes
// 1 / `tokens_per_s` seconds, in which the caller sleeps, and gives each live request a token: its
// prompt's tokens in turn, over and over. Prefill takes no time; sequences end at max_tokens or the
// model's length only, and no KV block is used. `options` name the model whose tokenizer and length
// the engine pretends to have.
// Thread rule: as Engine's. `clock` outlives the engine.
Result<std::unique_ptr<Engine>> StartStandIn(const EngineOptions& options, double tokens_per_s,
                                             const Clock& clock = kMachineClock);

}  // namespace pinion
