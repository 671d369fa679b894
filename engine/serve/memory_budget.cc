#include "engine/serve/memory_budget.h"

#include <utility>

namespace pinion {

bool MemoryBudget::Take(size_t bytes) {
  size_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ - used) return false;  // `used` never exceeds the limit
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return true;
}

std::optional<MemoryShare> MemoryShare::Take(std::shared_ptr<MemoryBudget> budget, size_t bytes) {
  MemoryShare share;
  share.budget_ = std::move(budget);
  if (!share.Grow(bytes)) return std::nullopt;
  return share;
}

MemoryShare& MemoryShare::operator=(MemoryShare&& other) noexcept {
  if (this == &other) return *this;
  ShrinkTo(0);
  budget_ = std::move(other.budget_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

bool MemoryShare::Grow(size_t more) {
  if (budget_ && !budget_->Take(more)) return false;
  bytes_ += more;
  return true;
}

void MemoryShare::ShrinkTo(size_t bytes) {
  if (bytes >= bytes_) return;
  if (budget_) budget_->Give(bytes_ - bytes);
  bytes_ = bytes;
}

}  // namespace pinion
