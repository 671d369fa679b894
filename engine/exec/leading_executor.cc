#include "engine/exec/leading_executor.h"

#include <utility>

#include "engine/base/check.h"
#include "engine/base/wire.h"
#include "engine/exec/order.h"
#include "engine/exec/step_wire.h"

namespace pinion {
namespace {

class LeadingExecutor final : public Executor {
 public:
  LeadingExecutor(std::unique_ptr<Executor> own, Communicator& world)
      : own_(std::move(own)), world_(world) {}
  ~LeadingExecutor() override { Send(world_, {OrderKind::kStop}); }

  Status AllocateKv(const KvRoom&) override {
    CHECK(false) << "call it on each process's own executor, before LeadExecutor";
    return {};
  }
  StepOutput Execute(const StepInput& input, StepCaller& caller) override {
    Send(world_, {OrderKind::kStep, Encode(input)});
    return own_->Execute(input, caller);
  }

  ExecutorMemory memory() const override { return own_->memory(); }
  StepReads reads() const override { return own_->reads(); }
  std::vector<double> waited_s() const override { return own_->waited_s(); }
  std::vector<RankPlacement> placements() const override { return own_->placements(); }

  bool AheadOfUse(size_t reached, bool half) const override {
    return own_->AheadOfUse(reached, half);
  }
  void PrepareKv(size_t reached, bool half) override {
    WireWriter writer;
    writer(static_cast<uint64_t>(reached), half);
    Send(world_, {OrderKind::kPrepareKv, writer.bytes()});
    own_->PrepareKv(reached, half);
  }

 private:
  std::unique_ptr<Executor> own_;
  Communicator& world_;
};

void ComputeTold(Executor& own, const std::string& payload) {
  auto input = DecodeStep(payload);
  CHECK(input) << "cannot decode a step of " << payload.size() << " bytes";
  // The leader alone has all logits, and chooses tokens. The others may compute a share of them.
  input->begun.clear();
  input->ended.clear();
  for (WantedRow& wanted : input->wanted) wanted = {wanted.row, RowUse::kItself};
  NoCaller nobody;
  own.Execute(*input, nobody);
}

void PrepareTold(Executor& own, const std::string& payload) {
  uint64_t reached = 0;
  bool half = false;
  WireReader reader(payload);
  reader(reached, half);
  CHECK(reader.ok()) << "cannot decode an order of " << payload.size() << " bytes";
  own.PrepareKv(reached, half);
}

}  // namespace

std::unique_ptr<Executor> LeadExecutor(std::unique_ptr<Executor> own, Communicator& world) {
  return std::make_unique<LeadingExecutor>(std::move(own), world);
}

void FollowExecutor(Executor& own, Communicator& world) {
  for (;;) {
    const Order order = AwaitOrder(world);
    if (order.kind == OrderKind::kStep)
      ComputeTold(own, order.payload);
    else if (order.kind == OrderKind::kPrepareKv)
      PrepareTold(own, order.payload);
    else
      return;
  }
}

}  // namespace pinion
