#include "engine/run/join_processes.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/base/version.h"
#include "engine/comm/world.h"
#include "engine/decoder/stage_places.h"
#include "engine/exec/order.h"
#include "engine/kv/siphash.h"

namespace pinion {

Result<Communicator*> JoinProcesses(const EngineOptions& options, Status able) {
  PINION_ASSIGN(Communicator* const world, JoinWorld());
  PINION_TRY(world ? StartTogether(*world, options, std::move(able)) : std::move(able));
  return world;
}

Status StartTogether(Communicator& world, const EngineOptions& options, Status able) {
  if (world.process() == 0) {
    PINION_TRY(std::move(able));
    PINION_TRY(StagePlaces::Of(options.partition(), world.processes()));
    Send(world, {OrderKind::kStart, StartText(options)});
    able = {};
  }
  return Together(&world, std::move(able));
}

std::string StartText(const EngineOptions& options) {
  return StrCat(Version(), "\n", ToJson(options).Dump());
}

Result<EngineOptions> OptionsOf(const std::string& start_text) {
  const size_t end = start_text.find('\n');
  const std::string version = start_text.substr(0, end);
  if (version != Version())
    return Fail(ErrorCode::kUsage,
                StrCat("the processes differ: Pinion is ", version, " in process 0 and ", Version(),
                       " in this one; ", SharedFact().way_out));
  const auto in_context = [](Error error) {
    return Unexpected(
        std::move(error).In(StrCat("Pinion ", Version(), " reading the leader's options")));
  };
  const auto json = Json::Parse(std::string_view(start_text).substr(end + 1));
  if (!json) return in_context(json.error());
  EngineOptions options;
  if (Status read = FromJson(*json, options); !read) return in_context(std::move(read).error());
  return options;
}

double CpuTime::used() const {
  const auto most = static_cast<double>(std::min(threads, cpus));
  return quota ? std::min(*quota, most) : most;
}

CpuTime CpuTimeOf(const Budget& host, size_t locals, const Budget& own, const Plan& plan) {
  CpuTime time{static_cast<size_t>(plan.total_threads()), own.cpus.size(), host.cpu_quota};
  if (time.quota) *time.quota /= static_cast<double>(locals);
  return time;
}

Status AgreeOnCpuTime(Communicator& world, const Result<CpuTime>& mine, const char* accepted) {
  PINION_TRY(Together(&world, mine ? Status{} : Unexpected(mine.error())));
  Status agreed = Agree(
      world,
      {{"the CPU time of a process", StrCat(mine->used(), mine->used() == 1 ? " CPU" : " CPUs"),
        accepted ? accepted
                 : "every step waits for the process with the least: have each compute on as many "
                   "CPUs as that one (--threads-bind), give all the same quota, or give each a "
                   "part in proportion with --unequal-hosts accept"}});
  if (agreed || !accepted) return agreed;
  if (world.process() == 0) LogWarning(agreed.error().message);
  return {};
}

RankShares SharesByCpuTime(Communicator& team, const CpuTime& mine, size_t each) {
  constexpr double kPerCpu = 100;  // quotas are seldom finer
  const auto own = static_cast<uint32_t>(std::max(1.0, std::round(mine.used() * kPerCpu)));
  std::vector<uint32_t> of_process(team.processes()), of_rank;
  team.Gather(&own, sizeof own, of_process.data());
  for (const uint32_t part : of_process) of_rank.insert(of_rank.end(), each, part);
  return RankShares(of_rank);
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

Status AgreeOnIdentity(Communicator& world, const Identity& mine) {
  return Agree(world, {{"ISA path", mine.isa}, {"type", mine.types}, {"model", mine.model}});
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
