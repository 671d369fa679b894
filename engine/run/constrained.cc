#include "engine/run/constrained.h"

#include <algorithm>
#include <utility>

#include "engine/base/clock.h"

namespace pinion {
namespace {

// Grammars that the helper reads one after another, in milliseconds: the masks of running sequences
// wait for them, and no more sequences than these begin with one step.
constexpr size_t kMostStarting = 8;
constexpr int64_t kWaitNs = 5'000'000;

}  // namespace

Status Constrained::Hold(std::unique_ptr<Sequence> sequence,
                         std::shared_ptr<const Grammar> grammar) {
  PINION_TRY(masks_.usable());
  held_.push_back({std::move(sequence), std::move(grammar), {}});
  BeginMore();
  return {};
}

void Constrained::BeginMore() {
  size_t starting = 0;
  for (WaitingSequence& held : held_) {
    if (starting == kMostStarting) return;
    ++starting;
    if (held.sequence->mask_row >= 0 || !held.error.empty()) continue;
    if (masks_.full()) return;
    // A log-probability takes a row of logits, which tokens that jump do not have.
    held.sequence->most_jumped = held.sequence->params.logprobs < 0 ? Masks::kMostForced : 0;
    auto row = masks_.Begin(*held.grammar, held.sequence->most_jumped);
    if (row)
      held.sequence->mask_row = *row;
    else
      held.error = row.error().message;
  }
}

std::vector<Constrained::ReadySequence> Constrained::TakeReady(bool waits) {
  std::vector<ReadySequence> taken;
  if (held_.empty()) return taken;
  masks_.Poll(waits ? NowNs() + kWaitNs : 0);
  while (!held_.empty()) {
    WaitingSequence& first = held_.front();
    const int32_t row = first.sequence->mask_row;
    if (row < 0 && first.error.empty()) break;
    if (row >= 0 && !masks_.begun(row)) break;
    if (row >= 0) first.error = masks_.failure(row);
    taken.push_back({std::move(first.sequence), std::move(first.error)});
    held_.pop_front();
  }
  BeginMore();
  return taken;
}

std::span<const int32_t> Constrained::Following(const Sequence& sequence, int32_t token) const {
  // The grammar does not apply to tokens of reasoning, and the first token may begin it.
  if (sequence.params.thought.any() &&
      (sequence.output_tokens() == 0 || thoughts_.contains(sequence.mask_row)))
    return {};
  const std::span<const int32_t> forced = masks_.forced(sequence.mask_row);
  if (forced.empty() || forced.front() != token) return {};
  return forced.subspan(1);
}

void Constrained::Take(const Sequence& sequence) {
  if (sequence.jumped == 0 && TakeThought(sequence)) return;
  masks_.Take(sequence.mask_row, std::span(sequence.tokens).last(1 + sequence.jumped));
}

bool Constrained::TakeThought(const Sequence& sequence) {
  const int32_t row = sequence.mask_row, token = sequence.tokens.back();
  if (sequence.params.thought.any() && sequence.output_tokens() == 1)
    thoughts_.insert_or_assign(row, ThoughtTracker(sequence.params.thought));
  const auto found = thoughts_.find(row);
  if (found == thoughts_.end()) return false;
  ThoughtTracker& tracker = found->second;
  const bool thinks = tracker.within() || tracker.opening() == token;
  tracker.Take(token);
  if (!tracker.within() && !tracker.opening()) thoughts_.erase(found);
  return thinks;
}

std::unique_ptr<Sequence> Constrained::Abort(uint64_t id) {
  const auto held = std::find_if(held_.begin(), held_.end(), [id](const WaitingSequence& one) {
    return one.sequence->id == id;
  });
  if (held == held_.end()) return nullptr;
  std::unique_ptr<Sequence> sequence = std::move(held->sequence);
  held_.erase(held);
  sequence->finish = FinishReason::kAborted;
  return sequence;
}

}  // namespace pinion
