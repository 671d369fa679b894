#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "engine/base/progress.h"

namespace pinion {

// Thread `thread`'s part [first, second) of `items`, contiguous and as even as possible.
inline std::pair<size_t, size_t> SliceOf(size_t items, size_t thread, size_t threads) {
  return {items * thread / threads, items * (thread + 1) / threads};
}

// The threads whose items must be done before a phase ends: this team's, or those of all ranks.
enum class PhaseScope { kTeam, kRanks };

// A team works in phases, each a number of items that threads take in chunks. A phase ends when all
// its items are done, no matter by which thread; their writes are visible to every thread that
// leaves the phase. Threads that hold no item are not waited for: a thread whose core
// was taken away finds on its return that the others have done its share of the phases, and runs
// through them without an item until it has caught up.
//
// So only the bodies may touch the data that a phase reads or writes, and even the number of items
// must be safe to read long after the phase is over. All threads call the same phases in the same
// order; the phases of kTeam scope may differ between ranks.
//
// Threads count their items, and wait, in groups whose cores share a cache: a word that every
// thread of a large team writes costs it a cache line's way across the machine for each. The items
// of a group's slices are counted in the group's word, by whichever thread did them; the group's
// last one counts the group in the team's. The first thread of a group looks for the end of a phase
// in the words of teams and passes it on to the others.
//
// Every atomic word below carries the number of its phase and only ever increases: a late thread
// sees from it that nothing is left to take, and no thread ever has to reset a word.
class Phases {
 public:
  // groups: the number of threads of each, in the order of the threads.
  // spins_before_yield: as in SpinBarrier. `yield` is called repeatedly by a thread that has waited
  // for longer.
  Phases(const std::vector<int>& groups, int spins_before_yield,
         std::function<void()> yield = YieldCore);
  Phases(const Phases&) = delete;
  Phases& operator=(const Phases&) = delete;

  // The phases of all ranks, including these; call before the first phase.
  void SetPeers(std::vector<const Phases*> peers) { peers_ = std::move(peers); }

  // Nanoseconds for which the threads have waited for a phase to end, added up over the threads.
  // Read it while no thread is in a phase.
  uint64_t waited_ns() const;

  // Calls body(begin, end) for chunks of at most `chunk` items: first from the thread's own slice,
  // whose memory it touched first, then from the rest of its next neighbours' slices.
  template <typename Body>
  void Share(int thread, size_t items, size_t chunk, PhaseScope scope, const Body& body) {
    Slot& own = Enter(thread, scope);
    const auto first = static_cast<size_t>(thread);
    size_t done = 0;  // of the slices of `group`
    Group* group = own.group;
    for (size_t i = 0; i < slots_.size() && i <= kNeighbours; ++i) {
      const size_t owner = (first + i) % slots_.size();
      if (slots_[owner].group != group) {
        Count(own, scope, *group, items, std::exchange(done, 0));
        group = slots_[owner].group;
      }
      const auto slice = SliceOf(items, owner, slots_.size());
      done += Take(slots_[owner].taken, own.phase, slice.second - slice.first, chunk,
                   [&](size_t begin, size_t end) { body(slice.first + begin, slice.first + end); });
    }
    Count(own, scope, *group, items, done);
    Leave(own, scope, items);
  }

  // Calls body(item) one by one in order, for items of unequal cost: put the longest first.
  template <typename Body>
  void ShareOneByOne(int thread, size_t items, PhaseScope scope, const Body& body) {
    Slot& own = Enter(thread, scope);
    const size_t done =
        Take(taken_one_by_one_, own.phase, items, 1, [&](size_t item, size_t) { body(item); });
    Count(own, scope, items, done);
    Leave(own, scope, items);
  }

 private:
  // Looking at a neighbour's cache line costs some 100 ns; this bounds the cost of finding nothing
  // to help with, whatever the size of the team.
  static constexpr size_t kNeighbours = 4;

  // The last phase that is over.
  struct alignas(64) Ended {
    std::atomic<uint32_t> team{0}, ranks{0};  // any phase; the last of kRanks scope
  };

  struct alignas(64) Group {
    size_t first = 0, last = 0;     // its threads: [first, last)
    std::atomic<uint64_t> left{0};  // phase, number of items of its slices not done yet
    Ended seen;                     // by its first thread, which alone writes it
  };

  struct alignas(64) Slot {
    std::atomic<uint64_t> taken{0};  // phase, number of items of this thread's slice taken
    Group* group = nullptr;
    bool looks = false;  // at the words of teams; otherwise at its group's
    // Private to the owner: its current phase, and of kRanks scope; how long it has waited.
    uint32_t phase = 0, rank_phase = 0;
    uint64_t waited_ns = 0;
  };

  static uint64_t Tagged(uint32_t phase, size_t count) { return uint64_t{phase} << 32 | count; }
  static size_t CountOf(uint64_t word) { return static_cast<uint32_t>(word); }
  // Above 0: `a` comes after `b`, even if the counter has wrapped around in between.
  static int32_t Compare(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b); }
  static int32_t Ahead(uint64_t word, uint32_t phase) {
    return Compare(static_cast<uint32_t>(word >> 32), phase);
  }

  // Takes chunks of `items` from `word` until none is left; returns the number of items done.
  template <typename Claimed>
  static size_t Take(std::atomic<uint64_t>& word, uint32_t phase, size_t items, size_t chunk,
                     const Claimed& claimed) {
    size_t done = 0;
    for (uint64_t seen = word.load(std::memory_order_relaxed);;) {
      const int32_t ahead = Ahead(seen, phase);
      const size_t taken = ahead < 0 ? 0 : CountOf(seen);
      if (ahead > 0 || taken >= items) return done;
      const size_t end = std::min(taken + chunk, items);
      // Relaxed: the end of the previous phase (Await acquires) made the items' input visible.
      if (!word.compare_exchange_weak(seen, Tagged(phase, end), std::memory_order_relaxed))
        continue;
      claimed(taken, end);
      progress::Advance();
      done += end - taken;
      seen = word.load(std::memory_order_relaxed);
    }
  }

  Slot& Enter(int thread, PhaseScope scope) {
    Slot& own = slots_[static_cast<size_t>(thread)];
    ++own.phase;
    if (scope == PhaseScope::kRanks) ++own.rank_phase;
    return own;
  }
  // Whether nothing is left of the phase after `done` more of its `all`; true for one thread only.
  static bool CountDown(std::atomic<uint64_t>& word, uint32_t phase, size_t all, size_t done);
  // `done` more of the items of the group's slices; of all items, or of groups that have some.
  void Count(const Slot& own, PhaseScope scope, Group& group, size_t items, size_t done);
  void Count(const Slot& own, PhaseScope scope, size_t all, size_t done);
  size_t SlicesOf(const Group& group, size_t items) const;
  size_t GroupsWith(size_t items) const;

  void End(const Slot& own, PhaseScope scope);
  void Leave(Slot& own, PhaseScope scope, size_t items);
  void Await(Slot& own, PhaseScope scope) const;
  void SpinThenYield(const Slot& own, PhaseScope scope) const;
  void PassOn(const Slot& own, PhaseScope scope);
  static bool Reached(const Ended& ended, const Slot& own, PhaseScope scope);
  bool IsOver(const Slot& own, PhaseScope scope) const;
  bool IsSeen(const Slot& own, PhaseScope scope) const;

  static void YieldCore();

  const int spins_before_yield_;
  const std::function<void()> yield_;
  std::vector<Group> groups_;
  std::vector<Slot> slots_;
  std::vector<const Phases*> peers_ = {this};
  alignas(64) std::atomic<uint64_t> taken_one_by_one_{0};  // phase, number of items taken
  // Phase, and the rest that is not done yet: items (if they are counted by no group), or groups.
  alignas(64) std::atomic<uint64_t> left_{0};
  Ended ended_;
};

}  // namespace pinion
