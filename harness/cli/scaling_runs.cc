#include "harness/cli/scaling_runs.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <mutex>

#include "engine/base/file.h"
#include "engine/base/process.h"
#include "engine/base/strings.h"
#include "engine/host/budget.h"
#include "engine/host/machine.h"
#include "engine/run/start.h"
#include "harness/bench/scaling.h"
#include "harness/cli/interruption.h"
#include "harness/profile/command.h"
#include "harness/trial/runner.h"

namespace pinion::harness {
namespace {

constexpr double kPollSeconds = 0.5;

// `plan`'s only rank, its CPUs divided evenly; nothing if they do not divide.
std::vector<Plan> DivideList(const Plan& plan, size_t ranks) {
  const std::vector<int>& cpus = plan.ranks.front().cpus;
  if (cpus.size() % ranks != 0) return {};
  Plan divided;
  const size_t each = cpus.size() / ranks;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const auto first = cpus.begin() + static_cast<ptrdiff_t>(rank * each);
    divided.ranks.push_back({static_cast<int>(rank),
                             {first, first + static_cast<ptrdiff_t>(each)},
                             {},
                             static_cast<int>(each)});
  }
  return {divided};
}

// All CPUs under 2, 4, ... ranks. The binding places them as it would for `-tp`; a list is divided.
Result<std::vector<Plan>> Splits(const EngineOptions& options, const Machine& machine,
                                 const Budget& budget, const Plan& plan) {
  std::vector<Plan> splits;
  const bool listed = options.threads_bind != "auto" && options.threads_bind != "all";
  for (size_t ranks = 2; ranks <= plan.ranks.front().cpus.size(); ranks *= 2) {
    if (listed) {
      for (Plan& divided : DivideList(plan, ranks)) splits.push_back(std::move(divided));
      continue;
    }
    EngineOptions split = options;
    split.tensor_parallel = static_cast<int>(ranks);
    PINION_ASSIGN(Plan of_ranks, PlanFor(split, machine, budget));
    splits.push_back(std::move(of_ranks));
  }
  return splits;
}

Result<std::vector<ScalingRun>> RunsFor(const EngineOptions& options) {
  PINION_ASSIGN(const Machine machine, ThisMachine());
  PINION_ASSIGN(const Budget budget, ComputeBudget(machine));
  PINION_ASSIGN(const Plan plan, PlanFor(options, machine, budget));
  PINION_ASSIGN(const std::vector<Plan> splits, Splits(options, machine, budget, plan));
  return ScalingRuns(plan, splits);
}

// Runs one bench to its end.
Result<ScalingRow> Measure(const EngineOptions& options, const std::vector<std::string>& flags,
                           const ScalingRun& run) {
  PINION_ASSIGN(const TemporaryFile printed, TemporaryFile::Make("the figures of a bench"));
  PINION_ASSIGN(const TemporaryFile log, TemporaryFile::Make("the log of a bench"));
  EngineOptions of_run = options;
  of_run.threads_bind = run.threads_bind;
  of_run.tensor_parallel = run.ranks;
  of_run.reserved_cpus.reset();  // reserved CPUs are not in the lists
  of_run.smt = "off";            // and all others are
  Process::Options child;
  child.arguments = {SelfPath(), "bench", "--json"};
  const auto engine = EngineArguments(of_run);
  child.arguments.insert(child.arguments.end(), engine.begin(), engine.end());
  child.arguments.insert(child.arguments.end(), flags.begin(), flags.end());
  child.stdout_fd = printed.fd();
  child.stderr_fd = log.fd();
  PINION_ASSIGN(Process process, Process::Start(child));
  std::optional<Process::Exit> exit;
  while (!(exit = process.Wait(kPollSeconds))) {
  }
  if (exit->signal != 0)
    return Fail(ErrorCode::kFailed, StrCat("the bench was ended by signal ", exit->signal));
  if (exit->code != 0) return Fail(ErrorCode::kFailed, LogTail(log.path(), 1));
  PINION_ASSIGN(const std::string text, ReadFile(printed.path()));
  PINION_ASSIGN(const Json figures, Json::Parse(text));
  return ReadScalingRow(run, figures);
}

void Print(const std::vector<ScalingRow>& rows, bool json) {
  std::cout << (json ? ToJson(rows).Dump(2) + "\n" : Render(rows)) << std::flush;
}

}  // namespace

Status BenchScaling(const EngineOptions& options, const std::vector<std::string>& bench_flags,
                    bool json) {
  if (options.ranks() != 1)
    return Fail(ErrorCode::kUsage,
                StrCat("--scaling varies the ranks by itself, and -tp is ", options.tensor_parallel,
                       ", -pp ", options.pipeline_parallel, "; leave them out"));
  PINION_ASSIGN(const std::vector<ScalingRun> runs, RunsFor(options));
  std::mutex mutex;
  std::vector<ScalingRow> rows;  // guarded by mutex
  const Interruption interruption([&] {
    const std::lock_guard lock(mutex);
    Print(rows, json);
    return StrCat(rows.size(), " of ", runs.size(), " runs are printed");
  });
  for (const ScalingRun& run : runs) {
    if (isatty(STDERR_FILENO))
      std::fprintf(stderr, "%d threads in %d rank%s\n", run.threads, run.ranks,
                   run.ranks == 1 ? "" : "s");
    auto row = Measure(options, bench_flags, run);
    const std::lock_guard lock(mutex);
    rows.push_back(row ? *row : ScalingRow{.run = run, .error = row.error().message});
  }
  const std::lock_guard lock(mutex);
  Print(rows, json);
  if (std::all_of(rows.begin(), rows.end(), [](const auto& row) { return !row.error.empty(); }))
    return Fail(ErrorCode::kFailed, "no run has succeeded (above)");
  return {};
}

}  // namespace pinion::harness
