// The rows of the registry.

#include <algorithm>
#include <type_traits>

#include "engine/run/device.h"
#include "engine/run/replicas.h"
#include "engine/run/settings.h"
#include "kernels/isa.h"

namespace pinion {
namespace {

using enum SettingKind;

constexpr int kMaxStepMs = 600'000;
// More ranks than any machine has L3 domains; a typo under nobind must not start endless threads.
constexpr int kMaxRanks = 256;

// Text, integers that always have a value, and switches.
template <typename T>
SettingAccess Field(T EngineOptions::*member) {
  return {[member](const Configuration& of) { return Json(of.options.*member); },
          [member](const Json& value, Configuration& of) {
            if constexpr (std::is_same_v<T, std::string>)
              of.options.*member = value.string();
            else if constexpr (std::is_same_v<T, bool>)
              of.options.*member = value.boolean();
            else
              of.options.*member = static_cast<T>(value.integer());
          }};
}

SettingAccess OptionalField(std::optional<int> EngineOptions::*member) {
  return {[member](const Configuration& of) {
            return of.options.*member ? Json(*(of.options.*member)) : Json();
          },
          [member](const Json& value, Configuration& of) {
            (of.options.*member).reset();
            if (!value.is_null()) of.options.*member = static_cast<int>(value.integer());
          }};
}

SettingAccess KvSpaceField() {
  constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
  return {[](const Configuration& of) {
            const auto& bytes = of.options.kv_cache_bytes;
            return bytes ? Json(GibOf(*bytes)) : Json();
          },
          [](const Json& value, Configuration& of) {
            of.options.kv_cache_bytes.reset();
            if (!value.is_null())
              of.options.kv_cache_bytes = static_cast<uint64_t>(value.number() * kGib);
          }};
}

SettingAccess SeedField() {
  return {[](const Configuration& of) { return Json(static_cast<int64_t>(of.options.seed)); },
          [](const Json& value, Configuration& of) {
            of.options.seed = static_cast<uint64_t>(value.integer());
          }};
}

SettingAccess ServerField(int Configuration::*member) {
  return {[member](const Configuration& of) { return Json(of.*member); },
          [member](const Json& value, Configuration& of) {
            of.*member = static_cast<int>(value.integer());
          }};
}

SettingAccess RuntimeField(std::string RuntimeChoice::*member) {
  return {[member](const Configuration& of) { return Json(of.runtime.*member); },
          [member](const Json& value, Configuration& of) { of.runtime.*member = value.string(); }};
}

std::vector<std::string> RuntimeNames(std::string RuntimeChoice::*member) {
  const auto& all = RuntimeSettings();
  return std::find_if(all.begin(), all.end(),
                      [&](const RuntimeSetting& one) { return one.member == member; })
      ->values;
}

std::vector<std::string> IsaNames() {
  std::vector<std::string> names = {"auto"};
  for (int i = 0; i < kernels::kIsaCount; ++i)
    names.emplace_back(kernels::Name(static_cast<kernels::Isa>(i)));
  return names;
}

std::vector<std::string> DeviceNames() {
  std::vector<std::string> names = {"auto"};
  for (const DeviceRow& row : Devices()) names.emplace_back(row.name);
  return names;
}

std::vector<SettingRow> PlacementRows() {
  return {
      {.key = "threads_bind",
       .flag = "--threads-bind",
       .environment = "VLLM_CPU_OMP_THREADS_BIND",
       .help = "auto, all, nobind, or a CPU list per rank as 0-3|4-7",
       .usual = "auto",
       .access = Field(&EngineOptions::threads_bind),
       .is_placement = true,
       .vllm = {.name = "VLLM_CPU_OMP_THREADS_BIND", .always = true},
       .llama_cpp = {"-t,-tb,-C"}},
      {.key = "reserved_cpus",
       .flag = "--reserved-cpus",
       .environment = "VLLM_CPU_NUM_OF_RESERVED_CPU",
       .help = "cores kept free for the front end (HTTP, tokenizer), only with --threads-bind auto",
       .usual = "0; serve, launch and sweep: 1 if every rank keeps at least 4 cores",
       .kind = kInteger,
       .access = OptionalField(&EngineOptions::reserved_cpus),
       .can_be_unset = true,
       .is_placement = true,
       .vllm = {"VLLM_CPU_NUM_OF_RESERVED_CPU"},
       .llama_cpp = {"[in the CPUs]"}},
      {.key = "smt",
       .flag = "--smt",
       .help = "one hardware thread of each core, or all of them; only with --threads-bind auto",
       .usual = "off",
       .access = Field(&EngineOptions::smt),
       .names = {"off", "on"},
       .is_placement = true,
       .vllm = {"[in the CPUs]"},
       .llama_cpp = {"[in the CPUs]"}},
      {.key = "memory_policy",
       .flag = "--memory-policy",
       .help = "NUMA nodes of a rank's memory: local: those of the threads that touch it first; "
               "strict: its own alone; preferred: its own and, if they are full, others; "
               "interleave: all in turn",
       .usual = "local",
       .access = Field(&EngineOptions::memory_policy),
       .names = {"local", "strict", "preferred", "interleave"}},
      {.key = "share_weights",
       .flag = "--share-weights",
       .help = "whether the engines of a server on the same NUMA nodes read one copy of the packed "
               "weights (serve --data-parallel-size)",
       .usual = "auto: on if sharing costs no speed, or if a copy for each engine does not fit in "
                "memory",
       .access = Field(&EngineOptions::share_weights),
       .names = {"auto", "off", "on"}},
      {.key = "device",
       .flag = "--device",
       .help = "device that computes the model",
       .usual = "auto, which is cpu",
       .access = Field(&EngineOptions::device),
       .names = DeviceNames(),
       .varies = false},
      {.key = "unequal_hosts",
       .flag = "--unequal-hosts",
       .help =
           "how to treat processes (mpirun) with different CPU time, such as hosts with "
           "more or fewer cores: refuse to start, or accept and, under -tp, give each a part of "
           "every layer in proportion to it; no effect in a single process",
       .usual = "refuse",
       .access = Field(&EngineOptions::unequal_hosts),
       .names = {"refuse", "accept"},
       .varies = false},
      {.key = "kv_cache_space",
       .flag = "--kv-cache-space",
       .environment = "VLLM_CPU_KVCACHE_SPACE",
       .help = "KV cache per rank: GiB, or with a unit such as 512MiB",
       .usual = "from free memory",
       .kind = kGib,
       .access = KvSpaceField(),
       .can_be_unset = true,
       .vllm = {.name = "VLLM_CPU_KVCACHE_SPACE", .always = true}},
      {.key = "tensor_parallel",
       .flag = "--tensor-parallel-size",
       .help = "ranks: thread teams, each with a share of the model; also -tp N",
       .usual = "1",
       .kind = kInteger,
       .access = Field(&EngineOptions::tensor_parallel),
       .least = 1,
       .most = kMaxRanks,
       .is_placement = true,
       .vllm = {"-tp"}},
      {.key = "pipeline_parallel",
       .flag = "--pipeline-parallel-size",
       .help =
           "stages of consecutive layers, each on ranks of its own: for a model that no host or "
           "node holds alone; also -pp N",
       .usual = "1",
       .kind = kInteger,
       .access = Field(&EngineOptions::pipeline_parallel),
       .least = 1,
       .most = kMaxRanks,
       .is_placement = true,
       .vllm = {"-pp"}},
      {.key = "replicas",
       .flag = "--data-parallel-size",
       .help = "engines behind one front end, each with CPUs and a KV cache of its own; a flag of "
               "serve alone",
       .usual = "1",
       .kind = kInteger,
       .access = ServerField(&Configuration::replicas),
       .least = 1,
       .most = kMaxReplicas,
       .is_of_server = true,
       .vllm = {"--data-parallel-size"}},
      {.key = "prefill_replicas",
       .flag = "--prefill-replicas",
       .help = "how many of these engines compute prompts for the others, which then go on with "
               "their keys and values; a flag of serve alone",
       .usual = "0, every engine computes its own",
       .kind = kInteger,
       .access = ServerField(&Configuration::prefill_replicas),
       .most = kMaxReplicas - 1,
       .is_of_server = true},
  };
}

std::vector<SettingRow> ArithmeticRows() {
  return {
      {.key = "isa",
       .flag = "--isa",
       .help = "instruction-set path; a name forces that one",
       .usual = "auto",
       .access = Field(&EngineOptions::isa),
       .names = IsaNames()},
      {.key = "gemm_kernel",
       .flag = "--gemm-kernel",
       .environment = "PINION_GEMM_KERNEL",
       .help = "auto, or NAME[@ROWS],...: the kernel to multiply with from this many rows on, such "
               "as avx512_bf16,onednn@128",
       .usual = "auto, which measures at start and prints the choice",
       .access = Field(&EngineOptions::gemm_kernel)},
      {.key = "dtype",
       .flag = "--dtype",
       .help = "type of the weights",
       .usual = "auto, which is the checkpoint's",
       .access = Field(&EngineOptions::dtype),
       .names = {"auto", "bfloat16", "float16", "float32"},
       .changes_outputs = true,
       .vllm = {.name = "--dtype", .always = true}},
      {.key = "activations",
       .flag = "--activations",
       .help = "type of the activations that are multiplied with AWQ, GPTQ, packed int4 and GGUF "
               "weights; float leaves those of W8A8 and FP8 unrounded, too",
       .usual = "auto, which is int8, or floats with --dtype float32",
       .access = Field(&EngineOptions::activations),
       .names = {"auto", "int8", "bf16", "float"},
       .changes_outputs = true},
      {.key = "task",
       .flag = "--task",
       .help = "task of the model; a generative one embeds by its last token and scores by "
               "the logits of yes and no",
       .usual = "auto, by the model's config",
       .access = Field(&EngineOptions::task),
       .names = {"auto", "generate", "embed", "score"},
       .varies = false},
      {.key = "head_dtype",
       .flag = "--head-dtype",
       .help = "the output layer as stored, or rounded at loading",
       .usual = "auto",
       .access = Field(&EngineOptions::head_dtype),
       .names = {"auto", "int8"},
       .changes_outputs = true},
      {.key = "kv_cache_dtype",
       .flag = "--kv-cache-dtype",
       .help = "type of keys and values; 8-bit types have a scale per head and token",
       .usual = "auto, which is that of the weights",
       .access = Field(&EngineOptions::kv_cache_dtype),
       .names = {"auto", "bf16", "fp16", "fp32", "int8", "fp8_e5m2", "fp8_e4m3"},
       .aliases = {"bfloat16", "float16", "half", "float32", "float", "fp8"},
       .changes_outputs = true,
       .vllm = {"--kv-cache-dtype",
                {{"fp8", "fp8"}, {"fp8_e4m3", "fp8_e4m3"}, {"fp8_e5m2", "fp8_e5m2"}}},
       .llama_cpp = {"-ctk,-ctv", {{"bf16", "bf16"}, {"fp16", "f16"}, {"fp32", "f32"}}}},
      {.key = "wire_dtype",
       .flag = "--wire-dtype",
       .help =
           "type in which partial sums of a layer are sent between processes (mpirun); no effect "
           "in a single process",
       .usual = "float32",
       .access = Field(&EngineOptions::wire_dtype),
       .names = {"float32", "bfloat16"},
       .changes_outputs = true,
       .varies = false},
  };
}

std::vector<SettingRow> StepRows() {
  return {
      {.key = "max_num_batched_tokens",
       .flag = "--max-num-batched-tokens",
       .help = "most tokens in one step",
       .usual = "2048",
       .kind = kInteger,
       .access = Field(&EngineOptions::max_num_batched_tokens),
       .least = 1,
       .vllm = {.name = "--max-num-batched-tokens", .always = true},
       .llama_cpp = {.name = "-b,-ub", .always = true}},
      {.key = "max_num_seqs",
       .flag = "--max-num-seqs",
       .help = "most sequences that run at once",
       .usual = "128",
       .kind = kInteger,
       .access = Field(&EngineOptions::max_num_seqs),
       .least = 1,
       .vllm = {.name = "--max-num-seqs", .always = true},
       .llama_cpp = {"-np"}},
      {.key = "max_model_len",
       .flag = "--max-model-len",
       .help = "longest sequence in tokens",
       .usual = "the model's",
       .kind = kInteger,
       .access = OptionalField(&EngineOptions::max_model_len),
       .least = 1,
       .can_be_unset = true,
       .vllm = {"--max-model-len"},
       .llama_cpp = {"-c"}},
      {.key = "max_step_ms",
       .flag = "--max-step-ms",
       .help =
           "longest step that may compute prompts while other sequences decode [ms]; 0: no bound",
       .usual = "8 times the decodes' own time, from 100 to 500 (large MoE models: up to 1000, or "
                "2000 while none decodes), for serve, "
                "launch "
                "and sweep; else 0",
       .kind = kInteger,
       .access = OptionalField(&EngineOptions::max_step_ms),
       .most = kMaxStepMs,
       .can_be_unset = true},
      {.key = "block_size",
       .flag = "--block-size",
       .help = "tokens per KV block, a multiple of 16",
       .usual = "64",
       .kind = kInteger,
       .access = Field(&EngineOptions::block_size),
       .least = 16,
       .most = 1024,
       .multiple = 16,
       .vllm = {"--block-size"}},
      {.key = "prefix_caching",
       .flag = "--enable-prefix-caching,!--no-enable-prefix-caching",
       .help = "reuse the KV of shared prefixes",
       .usual = "on",
       .kind = kSwitch,
       .access = Field(&EngineOptions::prefix_caching),
       .vllm = {"--enable-prefix-caching,!--no-enable-prefix-caching"}},
      {.key = "moe_prepack",
       .flag = "--moe-prepack",
       .environment = "VLLM_CPU_MOE_PREPACK",
       .help = "1: pack experts' weights at loading; 0: keep no packed copy, slower",
       .usual = "1",
       .kind = kSwitch,
       .access = Field(&EngineOptions::moe_prepack),
       .vllm = {"VLLM_CPU_MOE_PREPACK"}},
  };
}

std::vector<SettingRow> ProcessRows() {
  return {
      {.key = "allocator",
       .help = "memory allocator, preloaded unless it is the one as linked",
       .usual = "system",
       .access = RuntimeField(&RuntimeChoice::allocator),
       .names = RuntimeNames(&RuntimeChoice::allocator),
       .vllm = {"[LD_PRELOAD]"},
       .llama_cpp = {"[LD_PRELOAD]"}},
      {.key = "openmp",
       .help = "OpenMP runtime, preloaded unless it is libgomp as linked",
       .usual = "system",
       .access = RuntimeField(&RuntimeChoice::openmp),
       .names = RuntimeNames(&RuntimeChoice::openmp),
       .vllm = {"[LD_PRELOAD]"},
       .llama_cpp = {"[LD_PRELOAD]"}},
      {.key = "huge_pages",
       .help = "transparent huge pages for weights and KV",
       .usual = "on",
       .access = RuntimeField(&RuntimeChoice::huge_pages),
       .names = RuntimeNames(&RuntimeChoice::huge_pages)},
      {.key = "seed",
       .flag = "--seed",
       .help = "seed of random weights and of requests without a seed",
       .usual = "0",
       .kind = kSeed,
       .access = SeedField(),
       .varies = false,
       .vllm = {"--seed"},
       .llama_cpp = {"--seed"}},
  };
}

}  // namespace

const std::vector<SettingRow>& SettingRows() {
  static const std::vector<SettingRow> rows = [] {
    std::vector<SettingRow> all;
    for (auto* part : {PlacementRows, ArithmeticRows, StepRows, ProcessRows})
      for (SettingRow& row : part()) all.push_back(std::move(row));
    return all;
  }();
  return rows;
}

}  // namespace pinion
