#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

namespace pinion {

// The memory that clients can make the front end hold: bodies, parsed requests, unsent answers.
// Counts what is taken and refuses what would exceed the limit; allocates nothing itself.
// Thread rule: any thread.
class MemoryBudget {
 public:
  explicit MemoryBudget(size_t bytes) : limit_(bytes) {}
  size_t used() const { return used_.load(std::memory_order_relaxed); }
  size_t limit() const { return limit_; }

 private:
  friend class MemoryShare;
  bool Take(size_t bytes);
  void Give(size_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  const size_t limit_;
  std::atomic<size_t> used_ = 0;
};

// A part of a budget, given back by the destructor. One that was made by default belongs to no
// budget: it may grow as it likes and counts nothing, for servers without a limit.
class MemoryShare {
 public:
  MemoryShare() = default;
  // nullopt: the budget does not hold that much now.
  static std::optional<MemoryShare> Take(std::shared_ptr<MemoryBudget> budget, size_t bytes);
  MemoryShare(MemoryShare&& other) noexcept { *this = std::move(other); }
  MemoryShare& operator=(MemoryShare&& other) noexcept;
  ~MemoryShare() { ShrinkTo(0); }

  // False: the budget does not hold `more` now, and the share is as it was.
  bool Grow(size_t more);
  // Gives back what is above `bytes`.
  void ShrinkTo(size_t bytes);
  size_t bytes() const { return bytes_; }
  // Null without a budget.
  const MemoryBudget* budget() const { return budget_.get(); }

 private:
  std::shared_ptr<MemoryBudget> budget_;
  size_t bytes_ = 0;
};

}  // namespace pinion
