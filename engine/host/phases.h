#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace pinion {

// Thread `thread`'s part [first, second) of `items`, contiguous and as even as possible.
inline std::pair<size_t, size_t> SliceOf(size_t items, size_t thread, size_t threads) {
  return {items * thread / threads, items * (thread + 1) / threads};
}

// Who has done its items where a phase ends: this team, or the teams of all ranks.
enum class PhaseScope { kTeam, kRanks };

// How a team works: phase after phase, each a number of items that threads take in chunks. A phase
// ends when its items are done, by whomever: what was written by them is visible to whoever comes
// out of it. Threads that hold no item are not waited for. One whose core was taken away finds,
// when it is back, that the others have done its share of the phases meanwhile, and runs through
// them without an item until it has caught up.
//
// So nothing but the bodies may touch what a phase reads or writes, and the number of items too
// must be safe to read when the phase is long over. All threads call the same phases in the same
// order; ranks may differ in those that only their team meets after.
//
// Every word below carries the number of its phase and goes up only: a late thread sees by it that
// there is nothing left to take, and nobody has to reset anything.
class Phases {
 public:
  // spins_before_yield: as SpinBarrier's. give_way: what a thread that has waited for longer does,
  // again and again.
  Phases(int threads, int spins_before_yield, std::function<void()> give_way = YieldCore)
      : spins_before_yield_(spins_before_yield),
        give_way_(std::move(give_way)),
        slots_(static_cast<size_t>(threads)) {}
  Phases(const Phases&) = delete;
  Phases& operator=(const Phases&) = delete;

  // All ranks' phases, this one among them; before the first phase.
  void SetPeers(std::vector<const Phases*> peers) { peers_ = std::move(peers); }

  // body(begin, end) for chunks of at most `chunk` items: those of the thread's own slice, whose
  // memory it touched first, then what its next neighbours have not begun of theirs.
  template <typename Body>
  void Share(int thread, size_t items, size_t chunk, PhaseScope scope, const Body& body) {
    const Slot& own = Enter(thread, scope);
    const auto first = static_cast<size_t>(thread);
    size_t done = 0;
    for (size_t i = 0; i < slots_.size() && i <= kNeighbours; ++i) {
      const size_t owner = (first + i) % slots_.size();
      const auto slice = SliceOf(items, owner, slots_.size());
      done += Take(slots_[owner].taken, own.phase, slice.second - slice.first, chunk,
                   [&](size_t begin, size_t end) { body(slice.first + begin, slice.first + end); });
    }
    Leave(own, scope, items, done);
  }

  // body(item) one by one in their order, for items of unequal length: the longest first.
  template <typename Body>
  void ShareOneByOne(int thread, size_t items, PhaseScope scope, const Body& body) {
    const Slot& own = Enter(thread, scope);
    const size_t done =
        Take(taken_one_by_one_, own.phase, items, 1, [&](size_t item, size_t) { body(item); });
    Leave(own, scope, items, done);
  }

 private:
  // So many cache lines of others are looked at where there is nothing to help with, some 100 ns
  // each, whatever the size of the team.
  static constexpr size_t kNeighbours = 4;

  struct alignas(64) Slot {
    std::atomic<uint64_t> taken{0};  // phase, items of this thread's slice that are taken
    uint32_t phase = 0,
             rank_phase = 0;  // its owner's alone: the phase it is in, those of all ranks
  };

  static uint64_t Tagged(uint32_t phase, size_t count) { return uint64_t{phase} << 32 | count; }
  static size_t CountOf(uint64_t word) { return static_cast<uint32_t>(word); }
  // Above 0: `a` comes after `b`, also where the numbers have begun again.
  static int32_t Compare(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b); }
  static int32_t Ahead(uint64_t word, uint32_t phase) {
    return Compare(static_cast<uint32_t>(word >> 32), phase);
  }

  // Takes chunks of `items` from `word` until none is left; returns how many items it has done.
  template <typename Claimed>
  static size_t Take(std::atomic<uint64_t>& word, uint32_t phase, size_t items, size_t chunk,
                     const Claimed& claimed) {
    size_t done = 0;
    for (uint64_t seen = word.load(std::memory_order_relaxed);;) {
      const int32_t ahead = Ahead(seen, phase);
      const size_t taken = ahead < 0 ? 0 : CountOf(seen);
      if (ahead > 0 || taken >= items) return done;
      const size_t end = std::min(taken + chunk, items);
      // Relaxed: what the items read was made visible by the end of the phase before.
      if (!word.compare_exchange_weak(seen, Tagged(phase, end), std::memory_order_relaxed))
        continue;
      claimed(taken, end);
      done += end - taken;
      seen = word.load(std::memory_order_relaxed);
    }
  }

  const Slot& Enter(int thread, PhaseScope scope) {
    Slot& own = slots_[static_cast<size_t>(thread)];
    ++own.phase;
    if (scope == PhaseScope::kRanks) ++own.rank_phase;
    return own;
  }
  void Leave(const Slot& own, PhaseScope scope, size_t items, size_t done);
  void Count(const Slot& own, PhaseScope scope, size_t items, size_t done);
  void Await(const std::atomic<uint32_t>& word, uint32_t number) const;

  static void YieldCore();

  const int spins_before_yield_;
  const std::function<void()> give_way_;
  std::vector<Slot> slots_;
  std::vector<const Phases*> peers_ = {this};
  alignas(64) std::atomic<uint64_t> taken_one_by_one_{0};  // phase, items dealt
  alignas(64) std::atomic<uint64_t> left_{0};              // phase, items not done yet
  alignas(64) std::atomic<uint32_t> ended_{0};             // the last phase that is over
  std::atomic<uint32_t> ranks_ended_{0};                   // ... of those that all ranks meet after
};

}  // namespace pinion
