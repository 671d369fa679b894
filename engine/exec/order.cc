#include "engine/exec/order.h"

namespace pinion {
namespace {

struct OrderHead {
  OrderKind kind;
  uint64_t bytes;
};

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

}  // namespace pinion
