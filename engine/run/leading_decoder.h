#pragma once

#include <cstddef>
#include <memory>

#include "engine/comm/communicator.h"
#include "engine/decoder/decoder.h"

namespace pinion {

// The decoder of the leading process: tells the others every step before its own ranks compute
// their part of it, and to unload the model when it is destroyed. `own`: with `world` as its
// communicator and a KV cache of blocks of block_tokens, which all processes have allocated.
std::unique_ptr<Decoder> LeadDecoder(std::unique_ptr<Decoder> own, Communicator& world,
                                     size_t block_tokens);

}  // namespace pinion
