#include "engine/sched/prefill_order.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace pinion {
namespace {

constexpr double kOthers = 1.0 / 16;    // of the prefill time while a prompt is overdue
constexpr double kMostOwed = 1.0 / 32;  // of the overdue prompt's time alone

bool Before(const PrefillCandidate& a, const PrefillCandidate& b) {
  const auto key = [](const PrefillCandidate& c) {
    return std::tuple(c.sequence->priority, c.sequence->preemptions == 0, c.rest_s,
                      c.sequence->number);
  };
  return key(a) < key(b);
}

// Preempted sequences first: their clients have read part of the answer.
bool MoreUrgent(const PrefillCandidate& a, const PrefillCandidate& b) {
  const auto key = [](const PrefillCandidate& c) {
    return std::pair(c.sequence->preemptions == 0, c.sequence->number);
  };
  return key(a) < key(b);
}

}  // namespace

PrefillOrder::PrefillOrder(std::vector<PrefillCandidate> candidates, const StepTimes& times,
                           const StepLoad& decodes, const PrefillLimits& limits, double& credit_s)
    : order_(std::move(candidates)),
      times_(times),
      load_(decodes),
      limits_(limits),
      credit_s_(credit_s) {
  std::sort(order_.begin(), order_.end(), Before);
  EnterGroup();
}

// Goes on to the candidates of the next priority, from end_ on.
void PrefillOrder::EnterGroup() {
  group_ = next_ = end_;
  urgent_.reset();
  if (group_ == order_.size()) return;
  const int priority = order_[group_].sequence->priority;
  for (; end_ < order_.size() && order_[end_].sequence->priority == priority; ++end_) {
    const PrefillCandidate& candidate = order_[end_];
    if (!candidate.overdue() && candidate.sequence->preemptions == 0) continue;
    if (!urgent_ || MoreUrgent(candidate, order_[*urgent_])) urgent_ = end_;
  }
  urgent_turn_ = urgent_.has_value();
  if (urgent_) Reserve();
}

// Reserves the part of the step that the others of the group have beside the urgent one.
void PrefillOrder::Reserve() {
  const PrefillCandidate& urgent = order_[*urgent_];
  const double prefill_s = std::max(0.0, limits_.until_s - times_.Seconds(load_));
  credit_s_ += prefill_s * kOthers;
  credit_s_ = std::min({credit_s_, prefill_s, urgent.alone_s() * kMostOwed});
  double wanted_s = 0;
  for (size_t i = group_; i < end_ && wanted_s < credit_s_; ++i)
    if (i != *urgent_) wanted_s += order_[i].rest_s;
  // They cannot use less than a granule: it is kept for them until it suffices.
  const size_t first = *urgent_ == group_ ? group_ + 1 : group_;
  const bool enough =
      first < end_ &&
      times_.PrefillSeconds(order_[first].first, std::min(order_[first].rows, times_.granule())) <=
          credit_s_;
  urgent_until_s_ = limits_.until_s - (enough ? std::min(wanted_s, credit_s_) : 0);
}

// The rows of the candidate with which the step still ends in time.
size_t PrefillOrder::Fitting(const PrefillCandidate& candidate, double until_s) const {
  const size_t most = std::min(candidate.rows, limits_.rows);
  const size_t granule = std::min(times_.granule(), most);
  const auto fits = [&](size_t rows) {
    StepLoad load = load_;
    times_.Add(load, candidate.first, rows, rows == candidate.rows);
    return times_.Seconds(load) <= until_s;
  };
  if (most == 0) return 0;
  if (most == candidate.rows && fits(most)) return most;
  size_t fitting = 0, above = most / granule + 1;  // in granules
  while (above - fitting > 1) {
    const size_t middle = fitting + (above - fitting) / 2;
    (fits(middle * granule) ? fitting : above) = middle;
  }
  return std::max(fitting, size_t{limits_.must}) * granule;
}

std::optional<PrefillShare> PrefillOrder::Next() {
  while (group_ < order_.size()) {
    if (urgent_turn_) {
      urgent_turn_ = false;
      last_ = *urgent_;
    } else if (next_ < end_) {
      last_ = next_++;
    } else {
      EnterGroup();
      continue;
    }
    const bool urgent = urgent_ == last_ && next_ == group_;
    const PrefillCandidate& candidate = order_[last_];
    if (candidate.rows == 0 || (candidate.waiting && !admits_)) continue;
    const size_t rows = Fitting(candidate, urgent ? urgent_until_s_ : limits_.until_s);
    if (rows > 0) return PrefillShare{candidate.sequence, rows};
    if (!urgent) return std::nullopt;  // those behind it have more to compute
  }
  return std::nullopt;
}

void PrefillOrder::Took(size_t first, size_t rows) {
  PrefillCandidate& candidate = order_[last_];
  if (rows == 0) {
    candidate.rows = 0;  // not in this step
    if (candidate.waiting) admits_ = false;
    return;
  }
  const size_t skipped = first - candidate.first;
  times_.Add(load_, first, rows, skipped + rows == candidate.rows);
  // Rounding the urgent one's rows down may have left the others more than they were owed: a debt,
  // of a granule at most, since they may also have had the time because it could not go on.
  if (urgent_ && last_ != *urgent_)
    credit_s_ = std::max(credit_s_ - times_.PrefillSeconds(first, rows),
                         -times_.PrefillSeconds(first, times_.granule()));
  candidate.waiting = false;
  candidate.first = first + rows;
  candidate.rows -= skipped + rows;
  limits_.rows -= rows;
  limits_.must = false;
}

}  // namespace pinion
