#include "engine/exec/order.h"

namespace pinion {
namespace {

struct OrderHead {
  OrderKind kind;
  uint64_t bytes;
};

constexpr int kOrderChannel = 1000;  // stages have those of their numbers

// The head, then as many bytes as it says.
template <typename Receive>
Order Await(Receive receive) {
  OrderHead head{};
  receive(&head, sizeof head);
  Order order{head.kind, std::string(head.bytes, '\0')};
  if (head.bytes > 0) receive(order.payload.data(), head.bytes);
  return order;
}

}  // namespace

void Send(Communicator& world, const Order& order) {
  OrderHead head{order.kind, order.payload.size()};
  world.Broadcast(&head, sizeof head);
  std::string payload = order.payload;
  if (!payload.empty()) world.Broadcast(payload.data(), payload.size());
}

Order AwaitOrder(Communicator& world) {
  return Await([&](void* to, size_t bytes) { world.Broadcast(to, bytes); });
}

void SendAside(Communicator& world, const Order& order) {
  const OrderHead head{order.kind, order.payload.size()};
  for (size_t process = 1; process < world.processes(); ++process) {
    world.Send(process, kOrderChannel, &head, sizeof head);
    if (head.bytes > 0) world.Send(process, kOrderChannel, order.payload.data(), head.bytes);
  }
}

Order AwaitOrderAside(Communicator& world) {
  return Await([&](void* to, size_t bytes) { world.Receive(0, kOrderChannel, to, bytes); });
}

}  // namespace pinion
