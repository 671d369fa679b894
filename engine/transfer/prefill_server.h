#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/base/result.h"
#include "engine/transfer/address.h"
#include "engine/transfer/messages.h"

namespace pinion {

// Takes the orders of other engines, and sends them what is computed for them: the network of an
// engine with --role prefill. A thread of its own; a stranger, or an engine of another model, is
// refused and noted in the log.
// Thread rule: one thread, which may be any.
class PrefillServer {
 public:
  struct Options {
    Address listen;
    Facts facts;
    size_t most_tokens = 0;     // of an order
    std::vector<int> cpus;      // where its thread may run; none: where its maker does
    double sign_of_life_s = 1;  // how often one is sent while there is nothing else to send
  };
  // Errors: the address cannot be listened on.
  static Result<std::unique_ptr<PrefillServer>> Start(Options options);
  virtual ~PrefillServer() = default;

  // The sender of an order: a number that is unique among all connections, and the bytes that wait
  // to be sent to it.
  struct Receiver {
    uint64_t id = 0;
    std::shared_ptr<std::atomic<size_t>> unsent = {};
  };
  // An order, which has the id that its sender gave it, or that one is not wanted any more.
  struct Arrived {
    Receiver from;
    std::optional<OrderMessage> order;  // nothing: it is cancelled
  };
  virtual std::optional<Arrived> Next() = 0;
  virtual bool has_next() const = 0;
  virtual int wake_fd() const = 0;  // readable while Next has something

  // An answer to an order, whose id the message has. Nothing happens if its sender is gone.
  virtual void Send(const Receiver& to, TransferMessage message) = 0;

  virtual const Address& address() const = 0;  // with the port that was chosen, if 0 was given
  virtual size_t connections() const = 0;      // of engines that may order
};

}  // namespace pinion
