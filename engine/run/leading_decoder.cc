#include "engine/run/leading_decoder.h"

#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/wire.h"
#include "engine/run/order.h"

namespace pinion {
namespace {

class LeadingDecoder final : public Decoder {
 public:
  LeadingDecoder(std::unique_ptr<Decoder> own, Communicator& world, size_t block_tokens)
      : own_(std::move(own)), world_(world), block_tokens_(block_tokens) {}
  ~LeadingDecoder() override { Send(world_, {OrderKind::kStop}); }

  Status AllocateKv(size_t, size_t, size_t) override {
    CHECK(false) << "all processes allocate theirs before one leads";
    return {};
  }
  void Observe(ActivationObserver* observer) override {
    CHECK(observer == nullptr) << "an observer would see this process's ranks alone";
  }

  void Forward(const StepBatch& batch, const LogitsSink& sink) override {
    Send(world_, {OrderKind::kForward, Encode(batch, block_tokens_)});
    own_->Forward(batch, sink);
  }
  void ForwardStage(const StepBatch&, const Handover&, const LogitsSink&) override {
    CHECK(false) << "a leader computes whole models";
  }
  void TouchKv(size_t first, size_t last) override {
    WireWriter writer;
    writer(static_cast<uint64_t>(first), static_cast<uint64_t>(last));
    Send(world_, {OrderKind::kTouchKv, writer.bytes()});
    own_->TouchKv(first, last);
  }

  uint64_t weight_bytes() const override { return own_->weight_bytes(); }
  uint64_t kv_bytes() const override { return own_->kv_bytes(); }
  uint64_t state_bytes() const override { return own_->state_bytes(); }
  uint64_t expert_bytes_read() const override { return own_->expert_bytes_read(); }
  uint64_t shared_kv_bytes() const override { return own_->shared_kv_bytes(); }
  KvPieces kv_pieces() const override { return own_->kv_pieces(); }
  std::vector<Placement> placements() const override { return own_->placements(); }

 private:
  std::unique_ptr<Decoder> own_;
  Communicator& world_;
  const size_t block_tokens_;
};

}  // namespace

std::unique_ptr<Decoder> LeadDecoder(std::unique_ptr<Decoder> own, Communicator& world,
                                     size_t block_tokens) {
  return std::make_unique<LeadingDecoder>(std::move(own), world, block_tokens);
}

}  // namespace pinion
