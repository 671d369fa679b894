#include "engine/host/phases.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/trace.h"

namespace pinion {
namespace {

// A thread that loses its core in the middle of a chunk keeps all others waiting for a time slice,
// 3-4 ms. So each thread offers its core between phases, when it holds no item, and more often than
// the scheduler would take it: with a busy process on one of two cores 60-65 % of the throughput
// are left, and 36-50 % without the offers. On an idle machine they cost 0.4 us per millisecond.
constexpr int64_t kOfferEveryNs = 1'000'000;

void OfferCore() {
  thread_local int64_t offered_ns = 0;
  if (NowNs() - offered_ns < kOfferEveryNs) return;
  sched_yield();
  offered_ns = NowNs();
}

}  // namespace

Phases::Phases(const std::vector<int>& groups, int spins_before_yield, std::function<void()> yield)
    : spins_before_yield_(spins_before_yield), yield_(std::move(yield)), groups_(groups.size()) {
  size_t threads = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    groups_[i].first = std::exchange(threads, threads + static_cast<size_t>(groups[i]));
    groups_[i].last = threads;
  }
  slots_ = std::vector<Slot>(threads);
  for (Group& group : groups_)
    for (size_t thread = group.first; thread < group.last; ++thread) {
      slots_[thread].group = &group;
      slots_[thread].looks = groups_.size() == 1 || thread == group.first;
    }
}

size_t Phases::SlicesOf(const Group& group, size_t items) const {
  return SliceOf(items, group.last - 1, slots_.size()).second -
         SliceOf(items, group.first, slots_.size()).first;
}

size_t Phases::GroupsWith(size_t items) const {
  size_t count = 0;
  for (const Group& group : groups_) count += SlicesOf(group, items) > 0 ? 1 : 0;
  return count;
}

// The exchange is acq_rel: release publishes this thread's writes with its count, acquire collects
// those of the threads that counted before. So the thread that counts the last item of all has seen
// all writes of the phase, and its release store to ended_ passes them on to the threads in Await.
bool Phases::CountDown(std::atomic<uint64_t>& word, uint32_t phase, size_t all, size_t done) {
  size_t left = 0;
  uint64_t seen = word.load(std::memory_order_relaxed);
  do {
    const int32_t ahead = Ahead(seen, phase);
    if (all == 0 && ahead >= 0) return false;  // another thread has ended this empty phase
    left = (ahead < 0 ? all : CountOf(seen)) - done;
  } while (!word.compare_exchange_weak(seen, Tagged(phase, left), std::memory_order_acq_rel,
                                       std::memory_order_relaxed));
  return left == 0;
}

void Phases::Count(const Slot& own, PhaseScope scope, Group& group, size_t items, size_t done) {
  if (groups_.size() == 1) return Count(own, scope, items, done);
  if (done > 0 && CountDown(group.left, own.phase, SlicesOf(group, items), done))
    Count(own, scope, GroupsWith(items), 1);
}

void Phases::Count(const Slot& own, PhaseScope scope, size_t all, size_t done) {
  if (done > 0 && CountDown(left_, own.phase, all, done)) End(own, scope);
}

void Phases::End(const Slot& own, PhaseScope scope) {
  ended_.team.store(own.phase, std::memory_order_release);
  if (scope == PhaseScope::kRanks) ended_.ranks.store(own.rank_phase, std::memory_order_release);
}

void Phases::Leave(Slot& own, PhaseScope scope, size_t items) {
  const TraceSpan span("barrier");
  if (items == 0 && CountDown(left_, own.phase, 0, 0)) End(own, scope);
  OfferCore();
  Await(own, scope);
  if (own.looks && groups_.size() > 1) PassOn(own, scope);
}

void Phases::PassOn(const Slot& own, PhaseScope scope) {
  Ended& seen = own.group->seen;
  if (scope == PhaseScope::kTeam)
    seen.team.store(own.phase, std::memory_order_release);
  else
    seen.ranks.store(own.rank_phase, std::memory_order_release);
}

bool Phases::Reached(const Ended& ended, const Slot& own, PhaseScope scope) {
  const bool ranks = scope == PhaseScope::kRanks;
  return Compare((ranks ? ended.ranks : ended.team).load(std::memory_order_acquire),
                 ranks ? own.rank_phase : own.phase) >= 0;
}

bool Phases::IsOver(const Slot& own, PhaseScope scope) const {
  if (scope == PhaseScope::kTeam) return Reached(ended_, own, scope);
  return std::all_of(peers_.begin(), peers_.end(),
                     [&](const Phases* peer) { return Reached(peer->ended_, own, scope); });
}

// A thread that does not look itself sees the end in the word that its group's first thread writes.
bool Phases::IsSeen(const Slot& own, PhaseScope scope) const {
  return own.looks ? IsOver(own, scope) : Reached(own.group->seen, own, scope);
}

// Only a thread that has to wait reads the clock, so that measuring delays no other.
void Phases::Await(Slot& own, PhaseScope scope) const {
  if (IsSeen(own, scope)) return;
  const int64_t start_ns = NowNs();
  SpinThenYield(own, scope);
  own.waited_ns += static_cast<uint64_t>(NowNs() - start_ns);
}

uint64_t Phases::waited_ns() const {
  uint64_t sum = 0;
  for (const Slot& slot : slots_) sum += slot.waited_ns;
  return sum;
}

// The first thread of the group may have lost its core: the others look themselves now and then.
void Phases::SpinThenYield(const Slot& own, PhaseScope scope) const {
  constexpr int kLookEvery = 16;
  for (int i = 1; i <= spins_before_yield_; ++i) {
    if (IsSeen(own, scope) || (i % kLookEvery == 0 && IsOver(own, scope))) return;
    _mm_pause();
  }
  while (!IsOver(own, scope)) yield_();
}

void Phases::YieldCore() { sched_yield(); }

}  // namespace pinion
