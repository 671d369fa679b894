#pragma once

#include <cstdint>
#include <string>

#include "engine/comm/communicator.h"

namespace pinion {

// The messages of the leading process to those that compute the model with it, broadcast as plain
// data.
enum class OrderKind : uint32_t {
  kStart,      // load a model: payload is StartText (engine/run/join_processes.h)
  kStep,       // compute a step: payload is an encoded StepInput
  kPrepareKv,  // make memory of the cache ready: payload is uint64 reached, bool half
  kStop,       // unload the model
  kEnd         // end the process
};

struct Order {
  OrderKind kind = OrderKind::kEnd;
  std::string payload = {};
};

void Send(Communicator& world, const Order& order);  // on the leader
Order AwaitOrder(Communicator& world);               // on the others; may take hours

// The same while other threads of these processes are in collective calls, and compute on the CPU
// of the thread that awaits. It takes some microseconds longer.
void SendAside(Communicator& world, const Order& order);
Order AwaitOrderAside(Communicator& world);

}  // namespace pinion
