#pragma once

#include <span>
#include <vector>

namespace pinion::harness {

// Configurations are a population: most settings change little, a few change much. The value of one
// is better estimated from all of them together than from its own trials alone (empirical Bayes;
// Efron, Large-Scale Inference, ch. 1). True values are modelled as normal around the estimates'
// median, with a spread that is estimated too, except that one in twenty may lie far away.
class Population {
 public:
  // A log score and the standard error of its estimate. An error of 0 means that it was never
  // measured; such a member is ignored.
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
  std::vector<Component> spreads_;  // the posterior of the majority's spread
};

}  // namespace pinion::harness
