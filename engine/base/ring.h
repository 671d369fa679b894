#pragma once

#include <cstddef>
#include <vector>

#include "engine/base/check.h"

namespace pinion {

// The oldest to the newest of a few things. Each stays where it is; a new one takes the place of
// one that has gone, with the memory that this had.
template <typename T>
class Ring {
 public:
  explicit Ring(size_t most) : places_(most) { CHECK(most > 0); }

  size_t size() const { return size_; }
  size_t most() const { return places_.size(); }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == places_.size(); }

  // As the one that was there before has left it.
  T& Push() {
    CHECK(!full()) << size_;
    return At(size_++);
  }
  T& oldest() { return At(0); }
  T& newest() { return At(size_ - 1); }
  void Pop() {
    CHECK(!empty());
    first_ = (first_ + 1) % places_.size();
    --size_;
  }

 private:
  T& At(size_t i) { return places_[(first_ + i) % places_.size()]; }

  std::vector<T> places_;
  size_t first_ = 0, size_ = 0;
};

}  // namespace pinion
