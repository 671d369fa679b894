#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/transfer/address.h"
#include "engine/transfer/messages.h"

namespace pinion {

// Has prompts computed by other engines: the network of an engine with --role decode. A thread of
// its own keeps a connection to each of them, and tries again once a second while there is none. An
// engine that gives no sign of life is taken for lost until it answers again. Thread rule: one
// thread, which may be any.
class PrefillClient {
 public:
  struct Options {
    std::vector<Address> from;
    Facts facts;
    size_t block_bytes = 0, state_bytes = 0;  // of images: no message is much longer
    std::vector<int> cpus;                    // as PrefillServer's
    double retry_s = 1;
    // A peer that is silent for so long is lost: stopped, say, or its machine is. With the quarter
    // that may be added it is noticed within 10 s.
    double silence_s = 8;
  };
  static std::unique_ptr<PrefillClient> Start(Options options);
  virtual ~PrefillClient() = default;

  // Sends an order to the engine that has the fewest tokens left to compute. False: none is there
  // that takes so many.
  virtual bool Order(const OrderMessage& order) = 0;
  virtual void Cancel(uint64_t id) = 0;
  virtual bool any_up() const = 0;

  // The next event that has arrived, in order. An order's last is Done, also if its engine is lost.
  using Event = std::variant<BlocksMessage, StateMessage, DoneMessage>;
  virtual std::optional<Event> Next() = 0;
  virtual bool has_next() const = 0;
  virtual int wake_fd() const = 0;  // readable while Next has something

  struct Peer {
    std::string address;
    bool up = false;
    std::string reason;  // why it is not up
  };
  virtual std::vector<Peer> peers() const = 0;
};

}  // namespace pinion
