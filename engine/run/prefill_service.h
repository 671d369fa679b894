#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>

#include "engine/run/prefill_role.h"
#include "engine/transfer/prefill_server.h"

namespace pinion {

// Computes the prompts of other engines (--role prefill): an order becomes a sequence that ends
// with its first token, and its blocks are sent as steps fill them. Blocks that wait to be sent are
// used ones, so a slow link holds back the scheduler, not the memory.
class PrefillService final : public PrefillRole {
 public:
  PrefillService(Parts parts, std::shared_ptr<PrefillServer> server);
  ~PrefillService() override;

  bool Owns(uint64_t id) const override { return (id & kOwned) != 0; }
  void BeforeStep(int64_t ns) override;
  void AfterStep(const std::vector<std::unique_ptr<Sequence>>& finished) override;
  bool idle() const override { return orders_.empty() && !server_->has_next(); }
  int wake_fd() const override { return server_->wake_fd(); }
  int wait_ms() const override { return filled_.empty() ? -1 : 1; }  // for the sockets
  Json ToJson() const override;
  TransferStats stats() const override { return stats_; }

 private:
  // Of ids; those of the engine's own requests are below.
  static constexpr uint64_t kOwned = uint64_t{1} << 63;

  // By the ids of the server.
  struct Order {
    uint64_t their_id = 0;
    Sequence* sequence = nullptr;  // until it has ended
    std::vector<BlockHash> hashes = {};
    size_t blocks = 0, first_block = 0, taken = 0;  // all; wanted from; looked at so far
    size_t unsent = 0;                              // of filled_
    size_t cached_tokens = 0;
    std::string error = {};
  };
  struct Filled {
    uint64_t order = 0;
    uint32_t table = 0, index = 0;
    int32_t block = 0;  // one reference is ours
  };
  using Orders = std::map<uint64_t, Order>;

  void Begin(uint64_t id, OrderMessage message);
  Status CheckTokens(const std::vector<int32_t>& tokens) const;
  void Cancel(uint64_t id);
  void TakeFilled(uint64_t id, Order& order);
  void Send();
  void SendBlocks();
  void SendState(uint64_t id, const Order& order);
  void Finish(Orders::iterator order);

  Parts parts_;
  BlockTables tables_;
  const ImageBytes image_bytes_;
  std::shared_ptr<PrefillServer> server_;
  Orders orders_;
  std::deque<Filled> filled_;
  TransferStats stats_;
};

}  // namespace pinion
