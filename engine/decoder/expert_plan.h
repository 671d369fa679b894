#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pinion {

// One piece of work of a layer's experts: all tokens of one expert, some of its columns.
struct ExpertItem {
  uint32_t expert;
  uint32_t unit, units;  // columns, in the units that Cut was given
};

// A step's tokens grouped by the experts they chose. An assignment is one token at one expert;
// assignments are numbered by expert, then by token. Built anew for each layer.
class ExpertPlan {
 public:
  // chosen [rows][top_k]: distinct experts of each row.
  void Build(const int32_t* chosen, size_t rows, size_t top_k, size_t experts);

  size_t assignments() const { return choices_.size(); }
  size_t experts_touched() const { return touched_; }
  // The assignments of one expert: [first(e), first(e + 1)).
  size_t first(size_t expert) const { return first_[expert]; }
  size_t tokens(size_t expert) const { return first_[expert + 1] - first_[expert]; }
  // The choice that an assignment computes, as an index of `chosen`, and its row; the assignment of
  // a row's choice.
  size_t choice(size_t assignment) const { return choices_[assignment]; }
  size_t row(size_t assignment) const { return choices_[assignment] / top_k_; }
  size_t place(size_t row, size_t choice) const { return places_[row * top_k_ + choice]; }

  // Cuts the chosen experts, each `units` columns wide, into about equally long items, the longest
  // first, which `threads` take one by one.
  void Cut(size_t units, size_t threads, std::vector<ExpertItem>& items) const;

 private:
  size_t top_k_ = 0, touched_ = 0;
  std::vector<uint32_t> first_, choices_, places_;
};

}  // namespace pinion
