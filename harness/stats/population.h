#pragma once

#include <span>
#include <vector>

namespace pinion::harness {

// Configurations are a population: most settings do little, a few do much. What one of them is
// worth is better told from all estimates together than from its own alone (empirical Bayes; Efron,
// Large-Scale Inference, ch. 1). True values are taken as normal around the estimates' median, with
// a spread that the estimates themselves tell, but for one in twenty that may lie anywhere.
class Population {
 public:
  // A log score and the standard error of its estimate; 0: nothing is known of it, and it is left
  // out.
  struct Member {
    double estimate = 0, error = 0;
  };
  explicit Population(std::span<const Member> members);

  // Chance that the true value of `a` is above that of `b` by more than `margin`.
  double ChanceAhead(const Member& a, const Member& b, double margin) const;

 private:
  // One component of the mixture that a true value is drawn from.
  struct Component {
    double weight = 0, spread = 0;
  };
  std::vector<Component> PosteriorOf(const Member& member, double spread) const;

  double centre_ = 0;
  std::vector<Component> spreads_;  // how likely each spread of the many is
};

}  // namespace pinion::harness
