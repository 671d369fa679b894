#include "harness/probe/rate.h"

#include <algorithm>
#include <cstring>

namespace pinion::harness {
namespace {

constexpr size_t kBiteBytes = size_t{1} << 20;  // 25 us at 40 GB/s

// A place of its own for every thread: no two write to one cache line.
template <typename T>
struct alignas(64) Own {
  T value{};
};

}  // namespace

Result<Team> Team::Start(const std::vector<int>& cpus) {
  Plan plan;
  plan.ranks.push_back({0, cpus, {}, static_cast<int>(cpus.size())});
  return Start(plan);
}

Result<Team> Team::Start(const Plan& plan) {
  Team team;
  PINION_ASSIGN(team.ranks_, Ranks::Start(plan));
  for (const RankPlan& rank : plan.ranks) {
    team.first_.push_back(team.size_);
    team.size_ += static_cast<size_t>(rank.threads);
  }
  return team;
}

void Team::Run(const std::function<void(size_t, const Worker&)>& body) {
  ranks_->Run([&](const Worker& worker) {
    body(first_[static_cast<size_t>(worker.rank)] + static_cast<size_t>(worker.thread), worker);
  });
}

double Team::BestRate(SamplingPlan sampling, const std::function<uint64_t(size_t)>& bite) {
  std::vector<Own<double>> rates(size_);
  double best = 0;
  for (int sample = 0; sample < sampling.samples; ++sample) {
    Run([&](size_t thread, const Worker& worker) {
      worker.GlobalBarrier();
      const int64_t start_ns = sampling.clock->NowNs();
      uint64_t done = 0;
      double seconds = 0;
      do {
        done += bite(thread);
        seconds = static_cast<double>(sampling.clock->NowNs() - start_ns) * 1e-9;
      } while (seconds < sampling.sample_s);
      rates[thread].value = static_cast<double>(done) / seconds;
    });
    double sum = 0;
    for (const auto& rate : rates) sum += rate.value;
    best = std::max(best, sum);
  }
  return best;
}

Result<Arena> Arena::Allocate(size_t parts, size_t bytes_per_part) {
  Arena arena;
  arena.bytes_per_part_ = bytes_per_part / kBiteBytes * kBiteBytes;
  for (size_t i = 0; i < parts; ++i) {
    PINION_ASSIGN(Pages pages, Pages::Allocate(arena.bytes_per_part_));
    arena.parts_.push_back(std::move(pages));
  }
  return arena;
}

void Arena::Touch(Team& team) {
  team.Run([&](size_t thread, const Worker&) {
    // Not zero: pages of zeros may all be one page.
    std::memset(parts_[thread].data(), 0x3c, bytes_per_part_);
  });
}

double BestStreamRate(Team& team, SamplingPlan sampling, const Arena& arena,
                      const std::vector<std::vector<size_t>>& parts_of_thread,
                      void (*stream)(const std::byte*, size_t)) {
  struct Cursor {
    size_t part = 0, offset = 0;
  };
  std::vector<Own<Cursor>> cursors(team.size());
  return team.BestRate(sampling, [&](size_t thread) {
    Cursor& at = cursors[thread].value;
    const std::vector<size_t>& parts = parts_of_thread[thread];
    stream(arena.part(parts[at.part]) + at.offset, kBiteBytes);
    at.offset += kBiteBytes;
    if (at.offset == arena.bytes_per_part()) at = {(at.part + 1) % parts.size(), 0};
    return uint64_t{kBiteBytes};
  });
}

}  // namespace pinion::harness
