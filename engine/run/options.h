#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/weights/stages.h"
#include "kernels/types.h"

namespace pinion {

// How prompt computation is divided among engines.
struct PrefillOptions {
  enum class Role { kBoth, kPrefill, kDecode };

  Role role = Role::kBoth;
  std::string listen;             // kPrefill: address at which others ask for prompts
  std::vector<std::string> from;  // kDecode: addresses of engines that compute prompts
};
const char* Name(PrefillOptions::Role role);  // "both", "prefill", "decode"

// The copy of the packed weights that several engines of a server share (SharedWeights).
struct WeightCopy {
  int fd = -1;      // its file, which the process has inherited; -1: none, the weights are its own
  int number = 0;   // of the server's copies
  int engines = 0;  // that share it
  bool is_shared() const { return fd >= 0; }
};

// Everything that decides how an engine runs. Flags, environment and profiles fill this one struct;
// flags override the environment, which overrides a profile, which overrides the defaults.
struct EngineOptions {
  std::string model;                 // folder, preset:NAME or org/name
  std::string task = "auto";         // auto | generate | embed | score: see ApplyTask
  std::string dtype = "auto";        // auto | bfloat16 | float16 | float32
  std::string activations = "auto";  // auto | int8 | bf16: with weight-only quantised formats
  std::string head_dtype = "auto";   // auto: as stored; int8: rounded at loading
  // auto: as weights and activations | bf16 | fp16 | fp32 | int8 | fp8_e5m2 | fp8_e4m3, and their
  // other names (ResolveKvDtype)
  std::string kv_cache_dtype = "auto";
  std::string isa = "auto";            // auto | exactly one ISA path
  std::string wire_dtype = "float32";  // float32 | bfloat16: of ranks' terms between processes
  std::string gemm_kernel = "auto";    // auto: measured | NAME[@ROWS],... (kernels/gemm_plan.h)
  std::string threads_bind = "auto";   // auto | all | nobind | lists joined by '|'
  std::optional<int> reserved_cpus;
  std::string smt = "off";               // off | on: auto uses all hardware threads of a core
  std::string memory_policy = "local";   // local | strict | preferred | interleave: MemoryMode
  std::string share_weights = "auto";    // auto | off | on: SharesWeights, of a server's engines
  std::string device = "auto";           // what computes: auto | a row of Devices()
  std::string unequal_hosts = "refuse";  // refuse | accept: AgreeOnCpuTime
  int tensor_parallel = 1;
  int pipeline_parallel = 1;               // stages of layers, each on tensor_parallel ranks
  std::optional<uint64_t> kv_cache_bytes;  // per rank; unset: sized from free memory after loading
  int block_size = 64;                     // tokens per KV block: a multiple of 16
  int max_num_batched_tokens = 2048;       // >= 1
  int max_num_seqs = 128;                  // >= 1
  std::optional<int> max_model_len;        // unset: the model's own limit
  // Longest time of a step that computes prompts; 0: none. Unset: chosen from the decodes' own time
  // if a front end has clients that wait, none otherwise.
  std::optional<int> max_step_ms;
  bool prefix_caching = true;
  bool moe_prepack = true;  // pack experts at loading; false: at every step, from the plain layout
  uint64_t seed = 0;
  PrefillOptions prefill;  // set by serve, as the next four
  WeightCopy weight_copy;
  bool has_frontend = false;     // set by serve and launch, not by a flag
  bool pools = false;            // set by embed and rank: the model may do something but generate
  uint64_t front_end_bytes = 0;  // memory that the front end may take: set likewise

  Partition partition() const { return {tensor_parallel, pipeline_parallel}; }
  int ranks() const { return partition().ranks(); }
};

// Range checks that need no model; ErrorCode::kUsage.
Status Validate(const EngineOptions& options);

// The cache's type for weights and activations of `dtype`; ErrorCode::kUsage if the option names an
// unknown type. vLLM's fp8 is fp8_e4m3.
Result<kernels::KvDtype> ResolveKvDtype(const EngineOptions& options, kernels::Dtype dtype);

// Fields by their flag names with underscores ("threads_bind", "tensor_parallel", "kv_cache_space"
// in GiB, ...). FromJson overwrites the fields named and refuses unknown ones.
Json ToJson(const EngineOptions& options);
Status FromJson(const Json& object, EngineOptions& options);

// The settings' environment variables (engine/run/settings.h) over the fields.
Status ReadEnvironment(EngineOptions& options);

}  // namespace pinion
