#include "harness/cli/engine_flags.h"

#include "engine/base/strings.h"
#include "harness/cli/usage_error.h"

namespace pinion::harness {
namespace {

// vLLM's flags that size or drive a GPU: accepted by the parser so that the refusal can say why.
constexpr const char* kGpuFlags[] = {"--gpu-memory-utilization",
                                     "--swap-space",
                                     "--cpu-offload-gb",
                                     "--num-gpu-blocks-override",
                                     "--enforce-eager",
                                     "--cuda-graph-sizes",
                                     "--device"};

void RefuseGpuFlags(CLI::App& command) {
  for (const char* flag : kGpuFlags) {
    const auto refuse = [flag](const CLI::results_t&) -> bool {
      throw CLI::ValidationError(
          flag,
          "is for GPUs, and Pinion computes on CPUs; leave it out (memory for "
          "the KV cache is set by --kv-cache-space)");
    };
    // Hidden; with or without a value.
    command.add_option(flag, refuse)->expected(0, 1)->group("");
  }
}

}  // namespace

void EngineFlags::AddTo(CLI::App& command) {
  command
      .add_option("MODEL", model_,
                  "a folder, a .gguf file, preset:NAME, or org/name in the Hugging Face cache")
      ->required();
  AddFlagsTo(command);
}

void EngineFlags::AddFlagsTo(CLI::App& command) {
  const std::string group = "Engine";
  const auto add = [&](const char* name, auto& value, const char* help) {
    command.add_option(name, value, help)->group(group);
  };
  add("--dtype", dtype_, "auto, bfloat16, float16 or float32 (default auto: the checkpoint's)");
  add("--activations", activations_,
      "auto, int8 or bf16: type of the activations that are multiplied with AWQ, GPTQ, packed int4 "
      "and GGUF weights (default auto: int8, or floats with --dtype float32)");
  add("--head-dtype", head_dtype_,
      "auto or int8: the output layer as stored, or rounded at loading (default auto)");
  add("--kv-cache-dtype", kv_cache_dtype_,
      "auto, bf16, fp16, fp32, int8, fp8_e5m2 or fp8_e4m3 (also fp8): type of keys and values; "
      "8-bit types have a scale per head and token (default auto: that of the weights)");
  add("--isa", isa_,
      "auto or exactly one of scalar, avx2, avx2_vnni, avx512, avx512_vnni, avx512_bf16, amx "
      "(default auto)");
  add("--gemm-kernel", gemm_kernel_,
      "auto, or NAME[@ROWS],...: the kernel to multiply with from this many rows on, such as "
      "avx512_bf16,onednn@128 (default auto: measured at start, and printed) "
      "[PINION_GEMM_KERNEL]");
  add("--threads-bind", threads_bind_,
      "auto, all, nobind, or a CPU list per rank as 0-3|4-7 (default auto) "
      "[VLLM_CPU_OMP_THREADS_BIND]");
  add("--reserved-cpus", reserved_cpus_,
      "cores kept free for the front end (HTTP, tokenizer), under auto only (default 0; serve, "
      "launch and sweep: 1 if every rank keeps at least 4 cores) "
      "[VLLM_CPU_NUM_OF_RESERVED_CPU]");
  add("--smt", smt_,
      "off: one thread per core; on: all hardware threads of a core, under auto only (default "
      "off)");
  add("--tensor-parallel-size", tensor_parallel_,
      "ranks: thread teams, each with a share of the model; also -tp N (default 1)");
  add("--kv-cache-space", kv_cache_space_,
      "KV cache per rank: GiB, or with a unit such as 512MiB (default: from free memory) "
      "[VLLM_CPU_KVCACHE_SPACE]");
  add("--block-size", block_size_, "tokens per KV block, a multiple of 16 (default 64)");
  add("--max-model-len", max_model_len_, "longest sequence in tokens (default: the model's)");
  add("--max-num-batched-tokens", max_num_batched_tokens_,
      "most tokens in one step, >= 1 (default 2048)");
  add("--max-num-seqs", max_num_seqs_, "most sequences that run at once, >= 1 (default 128)");
  add("--max-step-ms", max_step_ms_,
      "longest time of a step that computes prompts while others wait for tokens [ms]; 0: no bound "
      "(default: 8 times as long as the decodes alone, from 100 to 500, for serve, launch and "
      "sweep; else 0)");
  add("--moe-prepack", moe_prepack_,
      "1: pack experts' weights at loading; 0: keep no packed copy, slower (default 1) "
      "[VLLM_CPU_MOE_PREPACK]");
  command
      .add_option("--seed", seed_,
                  "seed of random weights and of requests without a seed (default 0)")
      ->group(group)
      ->check(Unsigned());
  // Not add_flag: with an optional, it sets false if the flag is absent.
  command
      .add_flag_function(
          "--enable-prefix-caching,!--no-enable-prefix-caching",
          [this](int64_t count) { prefix_caching_ = count > 0; },
          "reuse the KV of shared prefixes (default on)")
      ->group(group);
  RefuseGpuFlags(command);
}

Result<EngineOptions> EngineFlags::Resolve(EngineOptions options) const {
  PINION_TRY(ReadEnvironment(options));
  const auto take = [](const auto& flag, auto& field) {
    if (flag) field = *flag;
  };
  if (!model_.empty()) options.model = model_;
  take(dtype_, options.dtype);
  take(activations_, options.activations);
  take(head_dtype_, options.head_dtype);
  take(kv_cache_dtype_, options.kv_cache_dtype);
  take(isa_, options.isa);
  take(gemm_kernel_, options.gemm_kernel);
  take(threads_bind_, options.threads_bind);
  take(reserved_cpus_, options.reserved_cpus);
  take(smt_, options.smt);
  take(tensor_parallel_, options.tensor_parallel);
  take(block_size_, options.block_size);
  take(max_model_len_, options.max_model_len);
  take(max_num_batched_tokens_, options.max_num_batched_tokens);
  take(max_num_seqs_, options.max_num_seqs);
  take(max_step_ms_, options.max_step_ms);
  take(seed_, options.seed);
  take(prefix_caching_, options.prefix_caching);
  if (moe_prepack_) {
    PINION_ASSIGN(options.moe_prepack, ParseSwitch(*moe_prepack_, "--moe-prepack"));
  }
  if (kv_cache_space_) {
    PINION_ASSIGN(options.kv_cache_bytes,
                  ParseBytes(*kv_cache_space_, uint64_t{1} << 30, "--kv-cache-space"));
  }
  PINION_TRY(Validate(options));
  return options;
}

}  // namespace pinion::harness
