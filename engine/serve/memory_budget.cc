#include "engine/serve/memory_budget.h"

#include <utility>

namespace pinion {

size_t MemoryBudget::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

bool MemoryBudget::Take(const std::string& client, size_t bytes) {
  if (bytes == 0) return true;
  const std::lock_guard lock(mutex_);
  if (bytes > limit_ - used_) return false;  // `used_` never exceeds the limit
  const auto found = used_by_.find(client);
  const size_t held = found == used_by_.end() ? 0 : found->second;
  if (bytes > client_limit() - held) return false;  // nor `held` a client's
  used_ += bytes;
  used_by_[client] = held + bytes;
  return true;
}

void MemoryBudget::Give(const std::string& client, size_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  const auto found = used_by_.find(client);
  if ((found->second -= bytes) == 0) used_by_.erase(found);
}

size_t MemoryBudget::UsedBy(const std::string& client) const {
  const std::lock_guard lock(mutex_);
  const auto found = used_by_.find(client);
  return found == used_by_.end() ? 0 : found->second;
}

std::optional<MemoryShare> MemoryShare::Take(std::shared_ptr<MemoryBudget> budget,
                                             std::string client, size_t bytes) {
  MemoryShare share;
  share.budget_ = std::move(budget);
  share.client_ = std::move(client);
  if (!share.Grow(bytes)) return std::nullopt;
  return share;
}

MemoryShare& MemoryShare::operator=(MemoryShare&& other) noexcept {
  if (this == &other) return *this;
  ShrinkTo(0);
  budget_ = std::move(other.budget_);
  client_ = std::move(other.client_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

bool MemoryShare::Grow(size_t more) {
  if (budget_ && !budget_->Take(client_, more)) return false;
  bytes_ += more;
  return true;
}

void MemoryShare::ShrinkTo(size_t bytes) {
  if (bytes >= bytes_) return;
  if (budget_) budget_->Give(client_, bytes_ - bytes);
  bytes_ = bytes;
}

MemoryShare::Shortage MemoryShare::WhyNot(size_t more) const {
  const size_t limit = budget_->client_limit();
  if (more > limit - bytes_) return Shortage::kNever;
  return more > limit - budget_->UsedBy(client_) ? Shortage::kClient : Shortage::kOthers;
}

}  // namespace pinion
