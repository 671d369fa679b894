#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/run/prefill_role.h"
#include "engine/transfer/prefill_client.h"

namespace pinion {

// Has long prompts computed by other engines (--role decode). No block that has arrived stays in
// use: it is in the prefix cache, from which the scheduler may take it for sequences that run, so
// that arrivals never stand in their way. One of which layers are still to come has a name there
// that no sequence asks for.
class RemotePrefill final : public PrefillRole {
 public:
  // A prompt that lacks fewer blocks is computed here: sending it would take as long.
  static constexpr size_t kLeastBlocks = 2;
  // A prompt for which there has been no room for so long is computed here, when its turn comes.
  static constexpr int64_t kPatienceNs = 1'000'000'000;

  RemotePrefill(Parts parts, std::shared_ptr<PrefillClient> client, size_t most_running);

  bool Keep(std::unique_ptr<Sequence>& sequence) override;
  size_t kept() const override;
  std::unique_ptr<Sequence> Abort(uint64_t id) override;
  void BeforeStep(int64_t ns) override;
  // Sequences that have ended leave room for the next order.
  void AfterStep(const std::vector<std::unique_ptr<Sequence>>&) override { OrderMore(); }
  bool idle() const override { return prompts_.empty() && !client_->has_next(); }
  int wake_fd() const override { return client_->wake_fd(); }
  int wait_ms() const override;  // until the patience of the first that is not ordered is over
  Json ToJson() const override;
  TransferStats stats() const override { return stats_; }

 private:
  // A prompt that another engine is to compute.
  struct Prompt {
    uint64_t id = 0;
    std::vector<std::unique_ptr<Sequence>> sequences;  // that have it; the first one is ordered
    std::vector<BlockHash> hashes;                     // of its full blocks
    size_t first_block = 0;                            // those before it were cached here
    int64_t since_ns = 0;
    bool ordered = false;
    size_t needs = 0;                          // blocks, over all tables
    std::vector<std::vector<size_t>> arrived;  // [tables][blocks]: bytes of their images
  };
  using Prompts = std::list<Prompt>;  // by priority, then in order of arrival

  // Of a block of which layers are still to come, for this prompt. As hashes are keyed, no block's
  // is ever that of another with bits flipped.
  static BlockHash NameOfPart(const Prompt& prompt, size_t index);
  void OrderMore();
  bool HasRoomFor(const Prompt& prompt) const;
  bool Order(Prompt& prompt);
  Prompts::iterator Find(uint64_t id);
  void Take(const BlocksMessage& message);
  bool Fits(const Prompt& prompt, const BlocksMessage& message) const;
  bool TakeBlocks(Prompt& prompt, const BlocksMessage& message);
  std::optional<int32_t> Hold(const Prompt& prompt, size_t table, size_t index,
                              std::optional<int32_t> after);
  void DropParts(const Prompt& prompt);
  void Take(const StateMessage& message);
  void Take(const DoneMessage& message);
  void Admit(Prompts::iterator prompt);
  void GiveUp(Prompts::iterator at, const std::string& why);

  Parts parts_;
  BlockTables tables_;
  const ImageBytes image_bytes_;
  std::shared_ptr<PrefillClient> client_;
  const size_t most_running_;
  Prompts prompts_;
  uint64_t last_id_ = 0;
  TransferStats stats_;
};

}  // namespace pinion
