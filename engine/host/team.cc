#include "engine/host/team.h"

#include <immintrin.h>
#include <sched.h>

#include <mutex>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/strings.h"
#include "engine/base/trace.h"
#include "engine/host/affinity.h"
#include "engine/host/region.h"

namespace pinion {
namespace {

// A leader that waits for work spins for about as long as the scheduler needs between two steps
// (2,000 pauses of 20-40 ns) and then sleeps: waking it through the kernel costs 12-58 us.
constexpr int kSpinsBeforeSleep = 2000;

// The CPU that this thread was last pinned to, or kNotPinned. OpenMP may replace the members of a
// team between two regions (after a smaller one, for instance), and a new member starts with its
// leader's mask of one CPU; so every region compares before it computes.
constexpr int kNotPinned = -1;
thread_local int pinned_cpu = kNotPinned;

// Blocks until `word` differs from `old`. Acquire: its writer's earlier writes are then visible.
void AwaitChange(const std::atomic<uint32_t>& word, uint32_t old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    _mm_pause();
  }
  word.wait(old, std::memory_order_acquire);
}

void NameForTrace(const Worker& worker) {
  thread_local bool named = false;
  if (!std::exchange(named, true))
    trace::NameThread(StrCat("rank ", worker.rank, " thread ", worker.thread));
}

// Memory order: Run writes body_, then increments epoch_ (release); leaders read epoch_ (acquire)
// and OpenMP passes body_ on to their teams. Results return the same way: a region's end joins its
// team, the leader increments finished_ (release), Run reads it (acquire).
class OmpRanks final : public Ranks {
 public:
  explicit OmpRanks(const Plan& plan)
      : plans_(plan.ranks), spins_(SpinsFor(plan)), all_(plan.total_threads(), BarrierSpins()) {
    for (const RankPlan& rank : plans_) {
      teams_.push_back(std::make_unique<SpinBarrier>(rank.threads, BarrierSpins()));
      const bool at_once = rank.groups.empty();
      phases_.push_back(std::make_unique<Phases>(
          at_once ? std::vector<int>{rank.threads} : rank.groups, BarrierSpins()));
    }
    std::vector<const Phases*> peers;
    for (const auto& phases : phases_) peers.push_back(phases.get());
    for (const auto& phases : phases_) phases->SetPeers(peers);
  }
  ~OmpRanks() override;

  Status Begin();

  int count() const override { return static_cast<int>(plans_.size()); }
  int threads(int rank) const override { return plans_[static_cast<size_t>(rank)].threads; }
  double waited_s(int rank) const override {
    return static_cast<double>(phases_[static_cast<size_t>(rank)]->waited_ns()) / 1e9 /
           threads(rank);
  }
  void Run(const std::function<void(const Worker&)>& body) override;

 private:
  // Never spin if threads have to share CPUs: the thread waited for may need this core.
  static int SpinsFor(const Plan& plan) {
    const auto allowed = ThreadAffinity();
    return allowed && plan.total_threads() > static_cast<int>(allowed->size()) ? 0
                                                                               : kSpinsBeforeSleep;
  }
  int BarrierSpins() const { return spins_ == 0 ? 0 : SpinBarrier::kSpinsBeforeYield; }

  Status StartLeaders();
  void Lead(int rank);
  void OnEveryThread(const std::function<void(const Worker&)>& body);
  void Region(int rank);
  void Enter(int rank, int thread, int threads_given);
  void Note(Error error);
  Status PinMember(const Worker& worker);

  const std::vector<RankPlan> plans_;
  const int spins_;
  std::vector<std::unique_ptr<SpinBarrier>> teams_;  // one per rank
  std::vector<std::unique_ptr<Phases>> phases_;      // one per rank
  SpinBarrier all_;

  std::thread::id owner_ = std::this_thread::get_id();
  std::vector<int> owner_affinity_;   // before Begin
  std::vector<std::thread> leaders_;  // of ranks 1, 2, ...
  const std::function<void(const Worker&)>* body_ = nullptr;
  bool team_exists_ = false;
  bool stopping_ = false;  // written before epoch_ like body_
  alignas(64) std::atomic<uint32_t> epoch_{0};
  alignas(64) std::atomic<uint32_t> finished_{0};  // regions of leaders_ since the start

  std::mutex error_mutex_;
  std::optional<Error> error_;  // the first error of any thread while starting
};

void OmpRanks::Note(Error error) {
  const std::lock_guard lock(error_mutex_);
  if (!error_) error_ = std::move(error);
}

Status OmpRanks::PinMember(const Worker& worker) {
  const RankPlan& plan = plans_[static_cast<size_t>(worker.rank)];
  if (plan.cpus.empty()) return {};
  const int cpu = plan.cpus[static_cast<size_t>(worker.thread)];
  // Without body_ this is Begin: pin again, as an earlier owner of the team may have moved the
  // thread.
  if (body_ && pinned_cpu == cpu) return {};
  if (auto pinned = SetThreadAffinity({cpu}); !pinned)
    return Unexpected(std::move(pinned).error().In(
        StrCat("pinning thread ", worker.thread, " of rank ", worker.rank)));
  pinned_cpu = cpu;
  return {};
}

// One thread's part of a region. Begin's region has no body: it only pins and records failures.
void OmpRanks::Enter(int rank, int thread, int threads_given) {
  const Worker worker{rank,
                      count(),
                      thread,
                      threads_given,
                      teams_[static_cast<size_t>(rank)].get(),
                      &all_,
                      phases_[static_cast<size_t>(rank)].get()};
  if (worker.threads != threads(rank)) {
    CHECK(!body_) << "rank " << rank << " has " << worker.threads << " of " << threads(rank);
    Note({ErrorCode::kExhausted,
          StrCat("OpenMP gave rank ", rank, " a team of ", worker.threads, " instead of ",
                 threads(rank),
                 " threads; unset OMP_THREAD_LIMIT and OMP_MAX_ACTIVE_LEVELS, or "
                 "ask for fewer threads")});
    return;
  }
  const auto pinned = PinMember(worker);
  if (!body_) {
    if (!pinned) Note(pinned.error());
    return;
  }
  if (trace::on()) NameForTrace(worker);
  (*body_)(worker);  // even if pinning failed because a CPU went offline: slow beats stopped
}

void OmpRanks::Region(int rank) {
  RunRegion(threads(rank), [this, rank](int thread, int given) { Enter(rank, thread, given); });
}

void OmpRanks::Lead(int rank) {
  for (uint32_t seen = 0;; ++seen) {
    AwaitChange(epoch_, seen, spins_);
    if (stopping_) return;
    Region(rank);
    finished_.fetch_add(1, std::memory_order_release);
    finished_.notify_one();  // only Run's thread waits
  }
}

Status OmpRanks::StartLeaders() {
  try {
    for (int rank = 1; rank < count(); ++rank) leaders_.emplace_back([this, rank] { Lead(rank); });
  } catch (const std::system_error& failure) {
    return Fail(ErrorCode::kExhausted,
                StrCat("cannot start the thread that leads rank ", leaders_.size() + 1, " of ",
                       count(), ": ", failure.what()));
  }
  return {};
}

// Leaders are made before the owner is pinned, or they and their teams would inherit its one CPU.
Status OmpRanks::Begin() {
  PINION_ASSIGN(owner_affinity_, ThreadAffinity());
  PINION_TRY(StartLeaders());
  team_exists_ = true;
  OnEveryThread(nullptr);  // makes the teams; each member pins itself
  if (error_) return Unexpected(*error_);
  return {};
}

void OmpRanks::OnEveryThread(const std::function<void(const Worker&)>& body) {
  body_ = body ? &body : nullptr;
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  Region(0);
  // Relaxed: only this thread writes epoch_. The product wraps around as finished_ does.
  const uint32_t target =
      epoch_.load(std::memory_order_relaxed) * static_cast<uint32_t>(leaders_.size());
  for (uint32_t now; (now = finished_.load(std::memory_order_acquire)) != target;)
    AwaitChange(finished_, now, spins_);
  body_ = nullptr;  // no leader reads it before the next epoch
}

void OmpRanks::Run(const std::function<void(const Worker&)>& body) {
  CHECK(std::this_thread::get_id() == owner_) << "Run belongs to the thread that called Start";
  CHECK(body) << "nothing to run";
  OnEveryThread(body);
}

OmpRanks::~OmpRanks() {
  stopping_ = true;
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& leader : leaders_) leader.join();
  if (!team_exists_ || plans_[0].cpus.empty()) return;
  // OpenMP keeps the owner's team after this object is gone: restore its threads' affinity, too.
  RunRegion(threads(0), [this](int, int) {
    if (SetThreadAffinity(owner_affinity_)) pinned_cpu = kNotPinned;
  });
}

Status CheckPlan(const Plan& plan) {
  if (plan.ranks.empty()) return Fail(ErrorCode::kUsage, "a plan without ranks cannot be started");
  for (const RankPlan& rank : plan.ranks) {
    const bool fits = rank.cpus.empty() || static_cast<int>(rank.cpus.size()) == rank.threads;
    CHECK(rank.groups.empty() ||
          std::accumulate(rank.groups.begin(), rank.groups.end(), 0) == rank.threads);
    if (rank.threads < 1 || !fits)
      return Fail(ErrorCode::kUsage,
                  StrCat("rank ", rank.rank, " has ", rank.threads, " threads for ",
                         rank.cpus.size(), " cpus; want one thread per cpu and at least one"));
  }
  return {};
}

}  // namespace

void SpinBarrier::Wait() {
  const TraceSpan span("barrier");
  // Relaxed is enough: the phase cannot advance before this thread arrives, so this value is
  // current.
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  // acq_rel: release publishes this thread's writes, acquire collects those of earlier arrivals. So
  // the last thread has seen all writes, and its release store to phase_ passes them on.
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
    arrived_.store(0, std::memory_order_relaxed);  // ordered before reuse by the store to phase_
    phase_.store(phase + 1, std::memory_order_release);
    return;
  }
  for (int i = 0; i < spins_before_yield_; ++i) {
    if (phase_.load(std::memory_order_acquire) != phase) return;
    _mm_pause();
  }
  while (phase_.load(std::memory_order_acquire) == phase) sched_yield();
}

Result<std::unique_ptr<Ranks>> Ranks::Start(const Plan& plan) {
  PINION_TRY(CheckPlan(plan));
  auto ranks = std::make_unique<OmpRanks>(plan);
  PINION_TRY(ranks->Begin());
  return ranks;
}

}  // namespace pinion
