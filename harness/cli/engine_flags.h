#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "engine/base/result.h"
#include "engine/run/options.h"

namespace pinion::harness {

// The flags that every command with an engine shares. They are kept as strings until Resolve, which
// applies defaults < profile < environment < flags in this one place.
class EngineFlags {
 public:
  // Adds MODEL (positional, required) and the flags to `command`. The object must outlive parsing.
  void AddTo(CLI::App& command);
  // Same without MODEL, for commands that vary it themselves.
  void AddFlagsTo(CLI::App& command);

  // `base`: defaults, or a profile's options. Errors are kUsage.
  Result<EngineOptions> Resolve(EngineOptions base = {}) const;

 private:
  std::string model_;
  std::optional<std::string> dtype_, activations_, head_dtype_, kv_cache_dtype_, isa_, gemm_kernel_,
      threads_bind_, smt_, kv_cache_space_, moe_prepack_;
  std::optional<int> reserved_cpus_, tensor_parallel_, block_size_, max_num_batched_tokens_,
      max_num_seqs_, max_model_len_, max_step_ms_;
  std::optional<uint64_t> seed_;
  std::optional<bool> prefix_caching_;
};

}  // namespace pinion::harness
