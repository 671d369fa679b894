#pragma once

#include <sys/eventfd.h>

#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/base/descriptor.h"

namespace pinion {

// Items that a network thread has received for the engine's thread, in order; the descriptor is
// readable while there are any.
template <typename T>
class Inbox {
 public:
  Inbox() : ready_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  int fd() const { return ready_.get(); }

  void Push(T item, size_t bytes = 0) {
    const std::lock_guard lock(mutex_);
    items_.emplace_back(std::move(item), bytes);
    bytes_ += bytes;
    if (items_.size() == 1) eventfd_write(ready_.get(), 1);
  }

  std::optional<T> Pop() {
    const std::lock_guard lock(mutex_);
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front().first));
    bytes_ -= items_.front().second;
    items_.pop_front();
    eventfd_t count = 0;
    if (items_.empty()) eventfd_read(ready_.get(), &count);
    return item;
  }

  bool empty() const {
    const std::lock_guard lock(mutex_);
    return items_.empty();
  }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return items_.size();
  }
  size_t bytes() const {  // of what is in it, as given to Push
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  const Descriptor ready_;
  mutable std::mutex mutex_;
  std::deque<std::pair<T, size_t>> items_;
  size_t bytes_ = 0;
};

}  // namespace pinion
