#include "harness/profile/other_engines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;
using testing::Not;

// A rank for each list.
Plan PlanOf(const std::vector<std::vector<int>>& lists) {
  Plan plan;
  for (const std::vector<int>& cpus : lists)
    plan.ranks.push_back(
        {static_cast<int>(plan.ranks.size()), cpus, {}, static_cast<int>(cpus.size())});
  return plan;
}

TEST(VllmCommand, TranslatesPlacementSpaceAndLimits) {
  EngineOptions options;
  options.model = "org/name";
  options.dtype = "bfloat16";
  options.tensor_parallel = 2;
  options.reserved_cpus = 3;
  options.kv_cache_bytes = (uint64_t{5} << 30) / 2;
  options.max_num_batched_tokens = 512;
  const Plan plan = PlanOf({{0, 1, 2}, {4, 5}});
  EXPECT_EQ(VllmShellText({options}, plan),
            "VLLM_CPU_OMP_THREADS_BIND='0-2|4-5' VLLM_CPU_NUM_OF_RESERVED_CPU=2 "
            "VLLM_CPU_KVCACHE_SPACE=3 vllm serve org/name -tp 2 --dtype bfloat16 "
            "--max-num-batched-tokens 512 --max-num-seqs 128");
}

TEST(VllmCommand, ReplicasAreItsDataParallelEnginesWithAListEach) {
  Configuration all;
  all.options.model = "org/name";
  all.options.reserved_cpus = 2;
  all.replicas = 2;
  const Plan plan = PlanOf({{0, 1, 2}, {4, 5}});
  const std::string text = VllmShellText(all, plan);
  EXPECT_THAT(text, HasSubstr("VLLM_CPU_OMP_THREADS_BIND='0-2|4-5'"));
  EXPECT_THAT(text, HasSubstr("VLLM_CPU_NUM_OF_RESERVED_CPU=1"));
  EXPECT_THAT(text, HasSubstr("vllm serve org/name --data-parallel-size 2"));
  EXPECT_TRUE(WithoutCounterpart(all, &SettingRow::vllm).empty());
}

TEST(VllmCommand, KeepsTheBindingsNameIfNothingIsPinned) {
  EngineOptions options;
  options.model = "org/name";
  options.threads_bind = "nobind";
  const Plan plan = PlanOf({std::vector<int>()});
  EXPECT_THAT(VllmShellText({options}, plan), HasSubstr("VLLM_CPU_OMP_THREADS_BIND=nobind"));
  EXPECT_THAT(VllmShellText({options}, {}), Not(HasSubstr("RESERVED")));
}

TEST(VllmCommand, PreloadsTheAllocatorAndTheOpenMpRuntime) {
  Configuration all;
  all.options.model = "org/name";
  EXPECT_THAT(VllmShellText(all, {}), Not(HasSubstr("LD_PRELOAD")));
  all.runtime = {"tcmalloc", "libomp", "on"};
  EXPECT_THAT(VllmShellText(all, {}),
              testing::ContainsRegex("LD_PRELOAD=([^ ]*/)?libtcmalloc_minimal.so.4:"
                                     "([^ ]*/)?libomp.so.5 .*vllm serve org/name"));
}

TEST(VllmCommand, WritesAPresetsWeightsFirst) {
  EngineOptions options;
  options.model = "preset:tiny";
  const std::string text = VllmShellText({options}, {});
  EXPECT_THAT(text, HasSubstr("pinion model make --preset tiny ./tiny\n"));
  EXPECT_THAT(text, HasSubstr("vllm serve ./tiny"));
}

TEST(VllmCommand, NamesSettingsThatVllmLacks) {
  EngineOptions options;
  EXPECT_TRUE(WithoutCounterpart({options}, &SettingRow::vllm).empty());
  options.isa = "avx2";
  options.head_dtype = "int8";
  options.kv_cache_dtype = "int8";
  EXPECT_THAT(WithoutCounterpart({options}, &SettingRow::vllm),
              testing::ElementsAre("isa=avx2", "head_dtype=int8", "kv_cache_dtype=int8"));
  options.kv_cache_dtype = "fp8_e5m2";
  EXPECT_THAT(WithoutCounterpart({options}, &SettingRow::vllm),
              testing::ElementsAre("isa=avx2", "head_dtype=int8"));
  EXPECT_THAT(VllmShellText({options}, {}), HasSubstr("--kv-cache-dtype fp8_e5m2"));
}

TEST(LlamaCommand, GivesThreadsMaskAndContext) {
  EngineOptions options;
  options.model = "/models/x.gguf";
  options.kv_cache_dtype = "fp16";
  options.max_model_len = 1000;
  const Plan plan = PlanOf({{0, 1, 2}, {4, 5}});
  EXPECT_EQ(LlamaShellText({options}, plan, {8}),
            "llama-server -m /models/x.gguf -t 5 -tb 5 -ctk f16 -ctv f16 -b 2048 -ub 2048 -np 8 "
            "-c 8000 -C 0x37 -Cb 0x37 --cpu-strict 1");
  options.max_model_len.reset();
  options.max_num_seqs = 4;
  const std::string unknown = LlamaShellText({options}, {}, {8});
  EXPECT_THAT(unknown, HasSubstr("-np 4")) << "no more than the configuration allows";
  EXPECT_THAT(unknown, Not(testing::ContainsRegex(" -(c|C|t) "))) << unknown;
}

// A value other than the row's default that the other engine has.
Json AnotherValue(const SettingRow& row, const Counterpart& counterpart) {
  const Json usual = row.get({});
  if (!counterpart.values.empty()) return counterpart.values.back().first;
  if (row.kind == SettingKind::kSwitch) return !usual.boolean();
  if (row.kind == SettingKind::kGib) return 2.5;
  if (row.kind != SettingKind::kText) return row.least + 2 * row.multiple;
  return row.names.empty() ? "nobind" : row.names.back();
}

// A counterpart that is added to a row is written, without a word elsewhere.
TEST(OtherEngines, EveryCounterpartOfTheRegistryIsInTheCommand) {
  const Plan plan = PlanOf({{0, 1}});
  for (const auto engine : {&SettingRow::vllm, &SettingRow::llama_cpp}) {
    int written = 0;
    for (const SettingRow& row : SettingRows()) {
      const Counterpart& counterpart = row.*engine;
      if (counterpart.name.empty() || counterpart.name.front() == '[') continue;
      Configuration all;
      all.options.model = "/models/x.gguf";
      row.set(AnotherValue(row, counterpart), all);
      const Command command = engine == &SettingRow::vllm
                                  ? VllmCommand(all, plan)
                                  : LlamaCommand(all, plan, {.sequence_tokens = 100});
      const std::string text = " " + ShellText(command) + " ";
      const bool is_switch = counterpart.name.find('!') != std::string::npos;
      for (const std::string& name : Split(counterpart.name, ',')) {
        if (is_switch && name.front() != '!') continue;  // the one for on, which is the default
        const std::string written_name = is_switch ? name.substr(1) : name;
        EXPECT_THAT(text, testing::ContainsRegex(StrCat(" ", written_name, "[ =]"))) << row.key;
      }
      ++written;
    }
    EXPECT_GT(written, 5);
  }
}

TEST(LlamaCommand, MakesTheFileFirst) {
  EngineOptions options;
  options.model = "preset:tiny";
  EXPECT_THAT(LlamaShellText({options}, {}, {}),
              testing::StartsWith("pinion model make --preset tiny ./tiny\n"
                                  "python3 convert_hf_to_gguf.py ./tiny --outfile tiny.gguf\n"
                                  "llama-server -m tiny.gguf "));
  options.model = "org/name";
  EXPECT_THAT(
      LlamaShellText({options}, {}, {}),
      testing::StartsWith("python3 convert_hf_to_gguf.py --remote org/name --outfile name.gguf\n"));
}

TEST(LlamaCommand, NamesSettingsThatLlamaCppLacks) {
  EngineOptions options;
  options.tensor_parallel = 2;
  options.kv_cache_dtype = "int8";
  options.max_num_seqs = 16;
  EXPECT_THAT(WithoutCounterpart({options}, &SettingRow::llama_cpp),
              testing::ElementsAre("tensor_parallel=2", "kv_cache_dtype=int8"));
}

TEST(CpuMask, HasTheFormThatLlamaCppTakes) {
  EXPECT_EQ(CpuMask({0, 1, 5}), "0x23");
  EXPECT_EQ(CpuMask({64}), "0x10000000000000000");
}

}  // namespace
}  // namespace pinion::harness
