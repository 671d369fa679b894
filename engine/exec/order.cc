#include "engine/exec/order.h"

namespace pinion {
namespace {

struct OrderHead {
  OrderKind kind;
  uint64_t bytes;
};

constexpr int kOrderChannel = 1000;  // stages have those of their numbers

}  // namespace

void Send(Communicator& world, const Order& order) {
  OrderHead head{order.kind, order.payload.size()};
  world.Broadcast(&head, sizeof head);
  std::string payload = order.payload;
  if (!payload.empty()) world.Broadcast(payload.data(), payload.size());
}

Order AwaitOrder(Communicator& world) {
  OrderHead head{};
  world.Broadcast(&head, sizeof head);
  Order order{head.kind, std::string(head.bytes, '\0')};
  if (head.bytes > 0) world.Broadcast(order.payload.data(), head.bytes);
  return order;
}

void SendAside(Communicator& world, const Order& order) {
  const OrderHead head{order.kind, order.payload.size()};
  for (size_t process = 1; process < world.processes(); ++process) {
    world.Send(process, kOrderChannel, &head, sizeof head);
    if (head.bytes > 0) world.Send(process, kOrderChannel, order.payload.data(), head.bytes);
  }
}

Order AwaitOrderAside(Communicator& world) {
  OrderHead head{};
  world.Receive(0, kOrderChannel, &head, sizeof head);
  Order order{head.kind, std::string(head.bytes, '\0')};
  if (head.bytes > 0) world.Receive(0, kOrderChannel, order.payload.data(), head.bytes);
  return order;
}

}  // namespace pinion
