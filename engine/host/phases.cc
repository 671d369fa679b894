#include "engine/host/phases.h"

#include <immintrin.h>
#include <sched.h>

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

void Phases::Leave(Slot& own, PhaseScope scope, size_t items, size_t done) {
  const TraceSpan span("barrier");
  if (done > 0 || items == 0) Count(own, scope, items, done);
  OfferCore();
  if (scope == PhaseScope::kTeam) return Await(ended_, own.phase, own);
  for (const Phases* peer : peers_) Await(peer->ranks_ended_, own.rank_phase, own);
}

// The exchange is acq_rel: release publishes this thread's writes with its count, acquire collects
// those of the threads that counted before. So the thread that counts the last item has seen all
// writes of the phase, and its release store to ended_ passes them on to the threads in Await.
void Phases::Count(const Slot& own, PhaseScope scope, size_t items, size_t done) {
  size_t left = 0;
  uint64_t seen = left_.load(std::memory_order_relaxed);
  do {
    const int32_t ahead = Ahead(seen, own.phase);
    if (items == 0 && ahead >= 0) return;  // another thread has ended this empty phase
    left = (ahead < 0 ? items : CountOf(seen)) - done;
  } while (!left_.compare_exchange_weak(seen, Tagged(own.phase, left), std::memory_order_acq_rel,
                                        std::memory_order_relaxed));
  if (left > 0) return;
  ended_.store(own.phase, std::memory_order_release);
  if (scope == PhaseScope::kRanks) ranks_ended_.store(own.rank_phase, std::memory_order_release);
}

// Only a thread that has to wait reads the clock, so that measuring delays nobody.
void Phases::Await(const std::atomic<uint32_t>& word, uint32_t number, Slot& own) const {
  if (Compare(word.load(std::memory_order_acquire), number) >= 0) return;
  const int64_t start_ns = NowNs();
  SpinThenYield(word, number);
  own.waited_ns += static_cast<uint64_t>(NowNs() - start_ns);
}

uint64_t Phases::waited_ns() const {
  uint64_t sum = 0;
  for (const Slot& slot : slots_) sum += slot.waited_ns;
  return sum;
}

void Phases::SpinThenYield(const std::atomic<uint32_t>& word, uint32_t number) const {
  for (int i = 0; i < spins_before_yield_; ++i) {
    if (Compare(word.load(std::memory_order_acquire), number) >= 0) return;
    _mm_pause();
  }
  while (Compare(word.load(std::memory_order_acquire), number) < 0) yield_();
}

void Phases::YieldCore() { sched_yield(); }

}  // namespace pinion
