#include "harness/load/arrivals.h"

#include <cmath>
#include <random>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

// Rates outside of these are mistakes: one request in 11 days, or more than a socket can take.
constexpr double kLeastRate = 1e-6, kMostRate = 1e6;

Status CheckRate(const char* what, double rate) {
  if (rate >= kLeastRate && rate <= kMostRate) return {};
  return Fail(ErrorCode::kUsage, StrCat(what, " is ", rate, " requests/s; it must be from ",
                                        kLeastRate, " to ", kMostRate));
}

double RateAt(const ArrivalPlan& plan, size_t i, size_t count) {
  if (!plan.ramp) return *plan.rate;
  const double progress = count > 1 ? static_cast<double>(i) / static_cast<double>(count - 1) : 0;
  const Ramp& ramp = *plan.ramp;
  if (ramp.exponential) return ramp.from * std::pow(ramp.to / ramp.from, progress);
  return ramp.from + (ramp.to - ramp.from) * progress;
}

}  // namespace

Status Validate(const ArrivalPlan& plan) {
  if (plan.rate) PINION_TRY(CheckRate("the request rate", *plan.rate));
  if (!(plan.burstiness > 0))
    return Fail(ErrorCode::kUsage, StrCat("the burstiness is ", plan.burstiness,
                                          "; it must be above 0: 1 is Poisson, inf even"));
  if (!plan.ramp) return {};
  PINION_TRY(CheckRate("the ramp's first rate", plan.ramp->from));
  return CheckRate("the ramp's last rate", plan.ramp->to);
}

std::vector<double> ArrivalSeconds(const ArrivalPlan& plan, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  // Drawn with a mean of 1, so that the draws do not depend on the rate.
  const bool even = std::isinf(plan.burstiness);
  std::gamma_distribution<double> gap(even ? 1 : plan.burstiness, even ? 1 : 1 / plan.burstiness);
  std::vector<double> times;
  double now_s = 0;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) now_s += (even ? 1 : gap(random)) / RateAt(plan, i, count);
    times.push_back(now_s);
  }
  return times;
}

}  // namespace pinion::harness
