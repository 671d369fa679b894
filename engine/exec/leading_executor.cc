#include "engine/exec/leading_executor.h"

#include <utility>

#include "engine/base/check.h"
#include "engine/base/ring.h"
#include "engine/base/wire.h"
#include "engine/exec/order.h"
#include "engine/exec/step_wire.h"

namespace pinion {
namespace {

// Whether orders must not be broadcast: a step in flight may be in collective calls when the next
// begins.
bool GoAside(const Executor& own) { return own.steps_in_flight() > 1; }

class LeadingExecutor final : public Executor {
 public:
  LeadingExecutor(std::unique_ptr<Executor> own, Communicator& world)
      : own_(std::move(own)), world_(world) {}
  ~LeadingExecutor() override { Tell({OrderKind::kStop}); }

  Status AllocateKv(const KvRoom&) override {
    CHECK(false) << "call it on each process's own executor, before LeadExecutor";
    return {};
  }
  void Begin(const StepInput& input) override {
    Tell({OrderKind::kStep, Encode(input)});
    own_->Begin(input);
  }
  StepOutput Finish(StepCaller& caller) override { return own_->Finish(caller); }
  size_t steps_in_flight() const override { return own_->steps_in_flight(); }

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
    Tell({OrderKind::kPrepareKv, writer.bytes()});
    own_->PrepareKv(reached, half);
  }

 private:
  void Tell(const Order& order) { GoAside(*own_) ? SendAside(world_, order) : Send(world_, order); }

  std::unique_ptr<Executor> own_;
  Communicator& world_;
};

StepInput ReadStep(const std::string& payload) {
  auto input = DecodeStep(payload);
  CHECK(input) << "cannot decode a step of " << payload.size() << " bytes";
  // The leader alone has all logits, and chooses tokens. The others may compute a share of them.
  input->begun.clear();
  input->ended.clear();
  for (WantedRow& wanted : input->wanted) wanted = {wanted.row, RowUse::kItself};
  return *std::move(input);
}

void PrepareTold(Executor& own, const std::string& payload) {
  uint64_t reached = 0;
  bool half = false;
  WireReader reader(payload);
  reader(reached, half);
  CHECK(reader.ok()) << "cannot decode an order of " << payload.size() << " bytes";
  own.PrepareKv(reached, half);
}

// A process that follows. It waits for the oldest step only when as many are in flight as may be:
// the leader, too, begins the next one only after the oldest.
class Follower {
 public:
  Follower(Executor& own, Communicator& world)
      : own_(own), world_(world), open_(own.steps_in_flight()) {}

  void Run() {
    for (;;) {
      const Order order = GoAside(own_) ? AwaitOrderAside(world_) : AwaitOrder(world_);
      if (order.kind == OrderKind::kStep) {
        StepInput& input = open_.Push();
        input = ReadStep(order.payload);
        own_.Begin(input);
        if (open_.full()) Finish();
        continue;
      }
      while (!open_.empty()) Finish();
      if (order.kind != OrderKind::kPrepareKv) return;
      PrepareTold(own_, order.payload);
    }
  }

 private:
  void Finish() {
    NoCaller nobody;
    own_.Finish(nobody);
    open_.Pop();
  }

  Executor& own_;
  Communicator& world_;
  Ring<StepInput> open_;
};

}  // namespace

std::unique_ptr<Executor> LeadExecutor(std::unique_ptr<Executor> own, Communicator& world) {
  return std::make_unique<LeadingExecutor>(std::move(own), world);
}

void FollowExecutor(Executor& own, Communicator& world) { Follower(own, world).Run(); }

}  // namespace pinion
