#include "harness/engines/replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/run/replicas.h"

namespace pinion::harness {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using Kind = EngineChoice::Kind;

// The commands on an imagined machine of two nodes of four cores, on ports from 9001.
std::vector<EngineCommand> Commands(const EngineChoice& engine, int replicas,
                                    EngineOptions options = {}, const ServedLoad& load = {}) {
  if (options.model.empty()) options.model = "/models/x.gguf";
  const Machine machine = *ImagineMachine("pack:2 numa:1 core:4 pu:1");
  const auto plan = PlanReplicas(options, replicas, machine, *ComputeBudget(machine));
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().message);
  std::vector<int> ports;
  for (int i = 1; i <= replicas; ++i) ports.push_back(9000 + i);
  const auto commands = CommandsFor(engine, options, *plan, machine, ports, load);
  EXPECT_TRUE(commands) << (commands ? "" : commands.error().message);
  return *commands;
}

EngineChoice Choice(Kind kind) {
  EngineChoice engine;
  engine.kind = kind;
  return engine;
}

std::string TextOf(const EngineCommand& made) { return ShellText(made.command); }

TEST(ReplicaCommands, PinionGetsItsCpusAndStartsOnThem) {
  EngineOptions options;
  options.kv_cache_bytes = uint64_t{3} << 30;
  const auto commands = Commands(Choice(Kind::kPinion), 2, options);
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_THAT(TextOf(commands[0]), HasSubstr(" serve /models/x.gguf --threads-bind 0-3 "));
  EXPECT_THAT(TextOf(commands[0]), HasSubstr("--host 127.0.0.1 --port 9001"));
  EXPECT_THAT(TextOf(commands[1]), HasSubstr("--threads-bind 4-7 "));
  EXPECT_THAT(TextOf(commands[1]), HasSubstr("--kv-cache-space 3 "));  // each its own
  EXPECT_THAT(TextOf(commands[1]), HasSubstr("--port 9002"));
  EXPECT_THAT(*commands[1].cpus, ElementsAre(4, 5, 6, 7));
}

TEST(ReplicaCommands, VllmGetsAListAPortAndAnAffinityEach) {
  EngineOptions options;
  options.tensor_parallel = 2;
  const auto commands = Commands(Choice(Kind::kVllm), 2, options);
  EXPECT_THAT(commands[1].command.environment,
              Contains(Pair("VLLM_CPU_OMP_THREADS_BIND", "4-5|6-7")));
  EXPECT_THAT(TextOf(commands[1]), HasSubstr("-tp 2"));
  EXPECT_THAT(TextOf(commands[1]), HasSubstr("--port 9002"));
  EXPECT_THAT(*commands[1].cpus, ElementsAre(4, 5, 6, 7));
}

TEST(ReplicaCommands, LlamaCppGetsItsPartOfTheClients) {
  const auto commands = Commands(Choice(Kind::kLlamaCpp), 2, {}, {5, 100});
  EXPECT_THAT(TextOf(commands[1]), HasSubstr("-np 3 -c 300"));
  EXPECT_THAT(TextOf(commands[1]), HasSubstr("-C 0xf0"));
  EXPECT_THAT(TextOf(commands[1]), HasSubstr("--membind=1"));
}

TEST(ReplicaCommands, AnyCommandIsFilledForEach) {
  EngineChoice engine = Choice(Kind::kCommand);
  engine.command = {"./server", "{port}", "{cpus}", "{threads}"};
  EngineOptions options;
  options.threads_bind = "1,2|5";
  const auto commands = Commands(engine, 2, options);
  EXPECT_THAT(TextOf(commands[0]), HasSubstr("./server 9001 1-2 2"));
  EXPECT_THAT(TextOf(commands[1]), HasSubstr("./server 9002 5 1"));
}

TEST(ReplicaCommands, WithoutBindingEachHasItsShareOfThreads) {
  EngineOptions options;
  options.threads_bind = "nobind";
  for (const Kind kind : {Kind::kPinion, Kind::kVllm}) {
    const auto commands = Commands(Choice(kind), 2, options);
    EXPECT_THAT(commands[1].command.environment, Contains(Pair("OMP_NUM_THREADS", "4")));
    EXPECT_FALSE(commands[1].cpus);
  }
}

TEST(ReplicaCommands, SingleServerOfAnotherEngineStartsAsWithoutReplicas) {
  const auto commands = Commands(Choice(Kind::kVllm), 1);
  EXPECT_FALSE(commands[0].cpus);
  EXPECT_THAT(commands[0].command.environment, Not(Contains(Pair("OMP_NUM_THREADS", "8"))));
}

TEST(FreePorts, AreAllDifferent) {
  auto ports = FreePorts(32);
  ASSERT_TRUE(ports) << ports.error().message;
  std::sort(ports->begin(), ports->end());
  EXPECT_EQ(std::adjacent_find(ports->begin(), ports->end()), ports->end());
  EXPECT_EQ(ports->size(), 32u);
}

}  // namespace
}  // namespace pinion::harness
