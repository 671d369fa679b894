#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/decoder/step.h"

namespace pinion {

// What the leading process tells those that compute the model with it: plain data, broadcast.
enum class OrderKind : uint32_t {
  kStart,    // load a model: payload is ToJson(EngineOptions)
  kForward,  // a step: payload is an encoded StepBatch
  kTouchKv,  // make pieces of the KV cache resident: payload is two uint64, [first, last)
  kStop,     // unload the model
  kEnd       // leave
};

struct Order {
  OrderKind kind = OrderKind::kEnd;
  std::string payload = {};
};

void Send(Communicator& world, const Order& order);  // on the leader
Order AwaitOrder(Communicator& world);               // on the others; may take hours

// A batch with everything that it points to. block_tokens: of the KV cache, whose block tables
// cover every slice's tokens.
std::string Encode(const StepBatch& batch, size_t block_tokens);

// Keeps what its batch points to.
struct DecodedBatch {
  StepBatch batch;
  std::vector<std::vector<int32_t>> block_tables;  // of the first slice, then of the next
};
// Nothing if `payload` was not written by Encode.
std::optional<DecodedBatch> Decode(const std::string& payload);

}  // namespace pinion
