#include "harness/stats/distributions.h"

#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>

namespace pinion::harness {
namespace {

using Binomial = boost::math::binomial;

}  // namespace

double BinomialAtMost(size_t n, double p, size_t k) {
  if (k >= n) return 1;
  return cdf(Binomial(static_cast<double>(n), p), static_cast<double>(k));
}

Interval ExactShareInterval(size_t good, size_t total, double level) {
  if (total == 0) return {0, 1, level};
  const double tail = (1 - level) / 2;
  const auto trials = static_cast<double>(total), successes = static_cast<double>(good);
  return {Binomial::find_lower_bound_on_p(trials, successes, tail),
          Binomial::find_upper_bound_on_p(trials, successes, tail), level};
}

double NormalQuantile(double probability) { return quantile(boost::math::normal(), probability); }

double StudentQuantile(double freedom, double probability) {
  return quantile(boost::math::students_t(freedom), probability);
}

}  // namespace pinion::harness
