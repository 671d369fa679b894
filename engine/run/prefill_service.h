#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>

#include "engine/run/prefill_role.h"
#include "engine/transfer/prefill_server.h"

namespace pinion {

// Computes the prompts of other engines (--role prefill): an order becomes a sequence that ends
// with its first token, and its blocks are sent as the layers of a step fill them. Blocks that a
// slow link leaves for later wait in the cache, where the scheduler's sequences may take them, and
// then the order fails. No order is begun while half of the cache waits.
class PrefillService final : public PrefillRole {
 public:
  PrefillService(Parts parts, std::shared_ptr<PrefillServer> server);

  bool Owns(uint64_t id) const override { return (id & kOwnIds) != 0; }
  void BeforeStep(int64_t ns) override;
  void DuringStep(const std::vector<Slice>& slices, std::span<const size_t> image_bytes) override;
  void AfterStep(const std::vector<std::unique_ptr<Sequence>>& finished) override;
  bool idle() const override { return orders_.empty() && waiting_.empty() && !server_->has_next(); }
  int wake_fd() const override { return server_->wake_fd(); }
  int wait_ms() const override { return filled_ > 0 ? 1 : -1; }  // for the sockets
  Json ToJson() const override;
  TransferStats stats() const override { return stats_; }

 private:
  struct Filled {
    size_t table = 0, index = 0;
    BlockHash hash = {};
    size_t sent = 0;  // bytes of its image
    // The block, while a step writes it; then -1, and it is found by its hash.
    int32_t in_step = -1;
  };
  struct Order {
    PrefillServer::Receiver to;
    uint64_t their_id = 0;
    Sequence* sequence = nullptr;                   // until it has ended
    BlockHash last = {};                            // of its last full block, once it has ended
    size_t blocks = 0, first_block = 0, taken = 0;  // all; wanted from; looked at so far
    size_t cached_tokens = 0;
    std::deque<Filled> filled = {};  // to be sent; tables take turns
    std::string error = {};
  };
  using Orders = std::map<uint64_t, Order>;  // by the ids of the server

  bool is_behind() const { return filled_ > parts_.pool.total() / 2; }
  void Begin(PrefillServer::Arrived arrived);
  Status CheckTokens(const std::vector<int32_t>& tokens) const;
  void Cancel(uint64_t id);
  void TakeFilled(Order& order, size_t computed);
  size_t Ready(const Filled& filled, std::span<const size_t> written) const;
  void Send(std::span<const size_t> written);
  bool SendBlocks(Order& order, std::span<const size_t> written);
  void ForgetSent(Order& order);
  void SendState(Order& order);
  void Finish(Orders::iterator order);
  void Drop(Order& order);

  Parts parts_;
  BlockTables tables_;
  const ImageBytes image_bytes_;
  std::shared_ptr<PrefillServer> server_;
  std::deque<PrefillServer::Arrived> waiting_;  // orders that are not begun
  Orders orders_;
  size_t filled_ = 0;  // of all orders
  TransferStats stats_;
};

}  // namespace pinion
