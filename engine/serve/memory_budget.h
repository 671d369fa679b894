#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace pinion {

// The memory that clients can make the front end hold: bodies, parsed requests, unsent answers.
// Counts what is taken and refuses what would exceed the limit, or one client's half of it, so that
// no client can take what the others need. Thread rule: any thread.
class MemoryBudget {
 public:
  explicit MemoryBudget(size_t bytes) : limit_(bytes) {}
  size_t used() const;
  size_t limit() const { return limit_; }
  size_t client_limit() const { return limit_ / 2; }

  // Requests that were refused because there was no memory for them now.
  void CountRejection() { rejections_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t rejections() const { return rejections_.load(std::memory_order_relaxed); }

 private:
  friend class MemoryShare;
  bool Take(const std::string& client, size_t bytes);
  void Give(const std::string& client, size_t bytes);
  size_t UsedBy(const std::string& client) const;

  const size_t limit_;
  std::atomic<uint64_t> rejections_ = 0;
  mutable std::mutex mutex_;
  size_t used_ = 0;
  std::map<std::string, size_t> used_by_;  // clients that hold some
};

// A part of a budget, given back by the destructor. One that was made by default belongs to no
// budget: it may grow as it likes and counts nothing, for servers without a limit.
class MemoryShare {
 public:
  MemoryShare() = default;
  // nullopt: the budget does not hold that much for this client now.
  static std::optional<MemoryShare> Take(std::shared_ptr<MemoryBudget> budget, std::string client,
                                         size_t bytes);
  MemoryShare(MemoryShare&& other) noexcept { *this = std::move(other); }
  MemoryShare& operator=(MemoryShare&& other) noexcept;
  ~MemoryShare() { ShrinkTo(0); }

  // False: the budget does not hold `more` now, and the share is as it was.
  bool Grow(size_t more);
  // Gives back what is above `bytes`.
  void ShrinkTo(size_t bytes);
  size_t bytes() const { return bytes_; }
  // Null without a budget.
  MemoryBudget* budget() const { return budget_.get(); }

  enum class Shortage {
    kNever,   // one client may not hold that much
    kClient,  // its client holds too much besides
    kOthers,  // all clients together do
  };
  // Why Grow(more) has failed.
  Shortage WhyNot(size_t more) const;

 private:
  std::shared_ptr<MemoryBudget> budget_;
  std::string client_;
  size_t bytes_ = 0;
};

}  // namespace pinion
