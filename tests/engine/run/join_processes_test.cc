#include "engine/run/join_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/base/version.h"
#include "engine/exec/order.h"
#include "tests/engine/comm/thread_world.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

// A process on a host of so many CPUs, all of which it computes on as far as a quota lets it.
struct Process {
  std::optional<double> quota = std::nullopt;  // of the host
  size_t locals = 1;
  size_t cpus = 4;  // of the process
};

CpuTime TimeOf(const Process& process) {
  Budget host, own;
  host.cpu_quota = process.quota;
  own.cpus.resize(process.cpus);
  const double share = process.quota.value_or(1000) / static_cast<double>(process.locals);
  RankPlan rank;
  rank.threads = static_cast<int>(std::clamp(share, 1.0, static_cast<double>(process.cpus)));
  Plan plan;
  plan.ranks.push_back(rank);
  return CpuTimeOf(host, process.locals, own, plan);
}

// The error of each of the processes; empty if they agree.
std::vector<std::string> Told(const std::vector<Process>& processes,
                              const char* accepted = nullptr) {
  std::vector<std::string> told(processes.size());
  testing::ThreadWorld(processes.size()).Run([&](Communicator& world) {
    const Status status = AgreeOnCpuTime(world, TimeOf(processes[world.process()]), accepted);
    if (!status) told[world.process()] = status.error().message;
  });
  return told;
}

// Such as an ISA path that one host lacks: the leader has begun by then, and would wait for ever.
TEST(StartTogether, AProcessThatCannotStartTellsAll) {
  testing::ThreadWorld(3).Run([](Communicator& world) {
    EngineOptions options;
    options.tensor_parallel = 3;
    if (world.process() > 0) {
      EXPECT_EQ(AwaitOrder(world).kind, OrderKind::kStart);
    }
    Status able;
    if (world.process() == 2) able = Fail(ErrorCode::kUsage, "--isa 'amx' is not usable");
    const Status started = StartTogether(world, options, std::move(able));
    ASSERT_FALSE(started);
    EXPECT_EQ(started.error().code, ErrorCode::kUsage);
    EXPECT_THAT(started.error().message, HasSubstr("process 2: --isa 'amx' is not usable"));
  });
}

TEST(StartTogether, NobodyIsToldOfAStartThatTheLeaderCannotMake) {
  testing::ThreadWorld(2).Run([](Communicator& world) {
    EngineOptions options;
    options.tensor_parallel = 2;
    if (world.process() == 0) {
      const Status unable = Fail(ErrorCode::kUsage, "no model given");
      EXPECT_EQ(StartTogether(world, options, unable).error().message, "no model given");
      Send(world, {OrderKind::kEnd});
    } else {
      EXPECT_EQ(AwaitOrder(world).kind, OrderKind::kEnd);
    }
  });
}

TEST(StartTogether, TheLeadersOptionsArriveAsTheyAre) {
  EngineOptions options;
  options.model = "preset:tiny";
  options.tensor_parallel = 3;
  const auto read = OptionsOf(StartText(options));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(ToJson(*read), ToJson(options));
}

TEST(StartTogether, AnotherVersionIsRefusedWithBothForAnyOptions) {
  const auto read = OptionsOf("9.9.9\n{\"from_the_future\": 1}");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kUsage);
  EXPECT_EQ(read.error().message,
            StrCat("the processes differ: Pinion is 9.9.9 in process 0 and ", Version(),
                   " in this one; start the same program with the same files on all hosts, with an "
                   "--isa that all of them have"));
  const auto other_build = OptionsOf(StrCat(Version(), "\n{\"from_the_future\": 1}"));
  ASSERT_FALSE(other_build);
  EXPECT_THAT(other_build.error().message, HasSubstr("from_the_future"));
  EXPECT_FALSE(OptionsOf(""));
}

TEST(AgreeOnCpuTime, UnequalQuotasAreRefusedWithBothValues) {
  for (const std::string& told : Told({{0.5}, {0.5}, {3}}))
    EXPECT_THAT(told, HasSubstr("the CPU time of a process is 0.5 CPUs in process 0 and 3 CPUs in "
                                "process 2; every step waits"));
  for (const std::string& told : Told({{1}, {}}))
    EXPECT_THAT(told, HasSubstr("1 CPU in process 0 and 4 CPUs in process 1"));
  for (const std::string& told : Told({{.cpus = 8}, {6, 1, 16}}))
    EXPECT_THAT(told, HasSubstr("8 CPUs in process 0 and 6 CPUs in process 1"));
}

TEST(AgreeOnCpuTime, CountsTheTimeOfEachProcess) {
  const std::vector<std::string> agreed(3);
  EXPECT_EQ(Told({{}, {}, {}}), agreed);
  EXPECT_EQ(Told({{1.5}, {1.5}, {1.5}}), agreed);
  EXPECT_EQ(Told({{1}, {2, 2}, {2, 2}}), agreed) << "two of them share a host, and its quota";
  EXPECT_EQ(Told({{4}, {}, {8}}), agreed) << "four CPUs are all that there are";
  EXPECT_EQ(Told({{8, 1, 16}, {.cpus = 8}, {16, 2, 32}}), agreed) << "each may use eight";
}

TEST(AgreeOnCpuTime, HostsOfDifferentSizeAreRefusedWithBothValues) {
  for (const std::string& told : Told({{.cpus = 16}, {.cpus = 16}, {.cpus = 8}}))
    EXPECT_EQ(told,
              "the processes differ: the CPU time of a process is 16 CPUs in process 0 and 8 CPUs "
              "in process 2; every step waits for the process with the least: have each compute on "
              "as many CPUs as that one (--threads-bind), give all the same quota, or give each "
              "a part in proportion with --unequal-hosts accept");
}

TEST(AgreeOnCpuTime, UnequalProcessesAreAcceptedIfAskedAndTheLeaderTellsTheConsequence) {
  for (const auto& processes : {std::vector<Process>{{.cpus = 16}, {.cpus = 8}},
                                std::vector<Process>{{.cpus = 16}, {8, 1, 16}}}) {
    SetLogLevel(LogLevel::kWarning);  // other tests of this program change it
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(Told(processes, "each has its part"), std::vector<std::string>(2));
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(log, HasSubstr("16 CPUs in process 0 and 8 CPUs in process 1; each has its part"));
    EXPECT_EQ(log.find("the processes differ"), log.rfind("the processes differ")) << "once";
  }
}

TEST(SharesByCpuTime, EveryRankHasAPartOfItsProcess) {
  const std::vector<Process> processes = {{.cpus = 4}, {.cpus = 2}, {0.25}};
  testing::ThreadWorld(3).Run([&](Communicator& world) {
    const CpuTime time = TimeOf(processes[world.process()]);
    EXPECT_EQ(SharesByCpuTime(world, time, 2),
              RankShares(std::vector<uint32_t>{400, 400, 200, 200, 25, 25}));
  });
}

// Threads that were given as a list, or by OMP_NUM_THREADS, beyond what the process may use.
TEST(CpuTime, IsTheLeastOfThreadsAndCpusAndQuota) {
  EXPECT_EQ((CpuTime{8, 4, std::nullopt}.used()), 4);
  EXPECT_EQ((CpuTime{2, 4, 3.5}.used()), 2);
  EXPECT_EQ((CpuTime{4, 4, 3.5}.used()), 3.5);
}

TEST(AgreeOnCpuTime, AProcessWithoutAPlanTellsAll) {
  testing::ThreadWorld(2).Run([](Communicator& world) {
    Result<CpuTime> time = CpuTime{};
    if (world.process() == 1) time = Fail(ErrorCode::kUsage, "no CPU is left");
    const Status status = AgreeOnCpuTime(world, time, "it waits");
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("process 1: no CPU is left"));
  });
}

// Such as two hosts of which one has an older CPU, or other files.
TEST(AgreeOnIdentity, EveryDifferenceIsRefusedWithBothValues) {
  const Identity usual = {"avx512_bf16", "bfloat16, KV bf16", "Llama with weights 12"};
  const struct {
    std::string Identity::*field;
    std::string other, told;
  } cases[] = {
      {&Identity::isa, "avx2", "ISA path is avx512_bf16 in process 0 and avx2 in process 1"},
      {&Identity::types, "bfloat16, KV int8",
       "type is bfloat16, KV bf16 in process 0 and bfloat16, KV int8 in process 1"},
      {&Identity::model, "Llama with weights 13",
       "model is Llama with weights 12 in process 0 and Llama with weights 13 in process 1"}};
  for (const auto& [field, other, told] : cases) {
    testing::ThreadWorld(3).Run([&, field = field](Communicator& world) {
      Identity mine = usual;
      if (world.process() > 0) mine.*field = other;
      const Status agreed = AgreeOnIdentity(world, mine);
      ASSERT_FALSE(agreed);
      EXPECT_EQ(agreed.error().code, ErrorCode::kUsage);
      EXPECT_EQ(agreed.error().message,
                "the processes differ: " + told +
                    "; start the same program with the same files on all hosts, with an --isa that "
                    "all of them have");
    });
  }
  testing::ThreadWorld(3).Run(
      [&](Communicator& world) { EXPECT_TRUE(AgreeOnIdentity(world, usual)); });
}

}  // namespace
}  // namespace pinion
