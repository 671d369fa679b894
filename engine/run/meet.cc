#include "engine/run/meet.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "engine/base/strings.h"
#include "engine/comm/world.h"
#include "engine/decoder/pipeline.h"
#include "engine/exec/order.h"
#include "engine/kv/siphash.h"

namespace pinion {

Result<Communicator*> MeetProcesses(const EngineOptions& options) {
  PINION_ASSIGN(Communicator* const world, JoinWorld());
  if (!world || world->process() != 0) return world;
  PINION_TRY(StagePlaces::Of(options.partition(), world->processes()));
  Send(*world, {OrderKind::kStart, ToJson(options).Dump()});
  return world;
}

Status AgreeOnQuota(Communicator& world, const Result<Budget>& mine, size_t locals) {
  PINION_TRY(Together(&world, mine ? Status{} : Unexpected(mine.error())));
  // One that allows as much as there are CPUs is no limit.
  const auto& quota = mine->cpu_quota;
  const bool limits = quota && *quota < static_cast<double>(mine->cpus.size());
  const std::string share =
      limits ? StrCat(*quota / static_cast<double>(locals), " CPUs of time") : "without limit";
  return Agree(world, {{"the CPU quota of a process", share,
                        "every step would wait for the process with the least: give all processes "
                        "the same quota, or start only those that have it"}});
}

Result<Budget> BudgetHere(const EngineOptions& options, const Machine& machine) {
  PINION_ASSIGN(Budget budget, ComputeBudget(machine));
  const LaunchedProcess launched = Launched().value_or(LaunchedProcess{});
  const bool listed = options.threads_bind.find_first_of("0123456789") != std::string::npos;
  return PartOf(machine, std::move(budget), launched.local, launched.locals,
                launched.shares_cpus && !listed);
}

uint64_t AvailableMemoryHere() {
  return AvailableMemoryBytes() / Launched().value_or(LaunchedProcess{}).locals;
}

EngineOptions OptionsOfPart(EngineOptions options, size_t processes) {
  options.tensor_parallel = std::max(1, options.ranks() / static_cast<int>(processes));
  options.pipeline_parallel = 1;
  return options;
}

Status Agree(Communicator& world, const std::vector<SharedFact>& facts) {
  for (const auto& [what, mine, way_out] : facts) {
    const std::vector<std::string> all = GatherTexts(world, mine);
    for (size_t process = 1; process < all.size(); ++process)
      if (all[process] != all[0])
        return Fail(ErrorCode::kUsage,
                    StrCat("the processes differ: ", what, " is ", all[0], " in process 0 and ",
                           all[process], " in process ", process, "; ", way_out));
  }
  return {};
}

std::string HashOf(const std::string& text) {
  std::vector<uint64_t> words((text.size() + sizeof(uint64_t) - 1) / sizeof(uint64_t));
  if (!text.empty()) std::memcpy(words.data(), text.data(), text.size());
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(SipHash128({}, words).low));
  return digits;
}

std::string HashOf(const TensorSource& weights) {
  std::string text;
  std::vector<std::byte> scratch;
  for (const std::string& name : weights.Names()) {
    const auto info = weights.Find(name);
    if (!info) continue;
    text += name;
    for (const int64_t size : info->shape) text += StrCat(" ", size);
    if (info->shape.empty() || info->shape[0] == 0) continue;
    const std::byte* row = weights.Rows(*info, 0, 1, scratch);
    text.append(reinterpret_cast<const char*>(row),
                RowElements(info->shape) * kernels::SizeOf(info->dtype));
  }
  return HashOf(text);
}

}  // namespace pinion
