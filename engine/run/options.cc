#include "engine/run/options.h"

#include <cstdlib>
#include <functional>
#include <limits>

#include "engine/base/strings.h"
#include "engine/run/isa_choice.h"

namespace pinion {
namespace {

constexpr uint64_t kGib = uint64_t{1} << 30;
// More ranks than any machine has L3 domains; a typo under nobind must not start endless threads.
constexpr int kMaxRanks = 256;
constexpr int kMaxStepMs = 600'000;

// One field of EngineOptions and how it goes to and from JSON.
struct Field {
  const char* name;
  std::function<Json(const EngineOptions&)> write;
  std::function<Status(const Json&, EngineOptions&)> read;
};

template <typename T>
Field Plain(const char* name, T EngineOptions::*member) {
  return {name, [=](const EngineOptions& options) { return Json(options.*member); },
          [=](const Json& object, EngineOptions& options) -> Status {
            PINION_ASSIGN(options.*member, Require<T>(object, name));
            return {};
          }};
}

template <typename T>
Field MaybeUnset(const char* name, std::optional<T> EngineOptions::*member) {
  return {name,
          [=](const EngineOptions& options) {
            return options.*member ? Json(*(options.*member)) : Json();
          },
          [=](const Json& object, EngineOptions& options) -> Status {
            (options.*member).reset();
            if (object.Find(name)->is_null()) return {};
            PINION_ASSIGN(options.*member, Require<T>(object, name));
            return {};
          }};
}

Json WriteKvSpace(const EngineOptions& options) {
  if (!options.kv_cache_bytes) return {};
  return static_cast<double>(*options.kv_cache_bytes) / static_cast<double>(kGib);
}

Status ReadKvSpace(const Json& object, EngineOptions& options) {
  const Json& value = *object.Find("kv_cache_space");
  options.kv_cache_bytes.reset();
  if (value.is_null()) return {};
  if (!value.is_number() && !value.is_string())
    return Fail(ErrorCode::kUsage, StrCat("kv_cache_space is ", value.Dump(),
                                          ", want GiB as a number or a text such as \"512MiB\""));
  const std::string text = value.is_string() ? value.string() : value.Dump();
  PINION_ASSIGN(options.kv_cache_bytes, ParseBytes(text, kGib, "kv_cache_space"));
  return {};
}

Status ReadSeed(const Json& object, EngineOptions& options) {
  PINION_ASSIGN(const int64_t seed, Require<int64_t>(object, "seed"));
  options.seed = static_cast<uint64_t>(seed);
  return {};
}

Status ReadFrontEndBytes(const Json& object, EngineOptions& options) {
  PINION_ASSIGN(const int64_t bytes, Require<int64_t>(object, "front_end_bytes"));
  if (bytes < 0)
    return Fail(ErrorCode::kUsage, StrCat("front_end_bytes is ", bytes, ", want 0 or more"));
  options.front_end_bytes = static_cast<uint64_t>(bytes);
  return {};
}

const std::vector<Field>& Fields() {
  static const std::vector<Field> fields = {
      Plain("model", &EngineOptions::model),
      Plain("dtype", &EngineOptions::dtype),
      Plain("activations", &EngineOptions::activations),
      Plain("head_dtype", &EngineOptions::head_dtype),
      Plain("kv_cache_dtype", &EngineOptions::kv_cache_dtype),
      Plain("isa", &EngineOptions::isa),
      Plain("gemm_kernel", &EngineOptions::gemm_kernel),
      Plain("threads_bind", &EngineOptions::threads_bind),
      MaybeUnset("reserved_cpus", &EngineOptions::reserved_cpus),
      Plain("smt", &EngineOptions::smt),
      Plain("tensor_parallel", &EngineOptions::tensor_parallel),
      {"kv_cache_space", WriteKvSpace, ReadKvSpace},
      Plain("block_size", &EngineOptions::block_size),
      Plain("max_num_batched_tokens", &EngineOptions::max_num_batched_tokens),
      Plain("max_num_seqs", &EngineOptions::max_num_seqs),
      MaybeUnset("max_model_len", &EngineOptions::max_model_len),
      MaybeUnset("max_step_ms", &EngineOptions::max_step_ms),
      Plain("prefix_caching", &EngineOptions::prefix_caching),
      Plain("moe_prepack", &EngineOptions::moe_prepack),
      {"seed",
       [](const EngineOptions& options) { return Json(static_cast<int64_t>(options.seed)); },
       ReadSeed},
      Plain("has_frontend", &EngineOptions::has_frontend),
      {"front_end_bytes",
       [](const EngineOptions& options) { return Json(options.front_end_bytes); },
       ReadFrontEndBytes},
  };
  return fields;
}

std::string FieldNames() {
  std::vector<std::string> names;
  for (const Field& field : Fields()) names.emplace_back(field.name);
  return Join(names, ", ");
}

Status AtLeastOne(int value, std::string_view flag) {
  if (value >= 1) return {};
  return Fail(ErrorCode::kUsage, StrCat(flag, " is ", value, ", want 1 or more"));
}

}  // namespace

Status Validate(const EngineOptions& options) {
  if (options.model.empty())
    return Fail(ErrorCode::kUsage,
                "no model given; name a folder, a .gguf file, preset:NAME or org/name");
  const auto& dtype = options.dtype;
  if (dtype != "auto" && dtype != "bfloat16" && dtype != "float16" && dtype != "float32")
    return Fail(ErrorCode::kUsage,
                StrCat("--dtype '", dtype, "' is unknown; use auto, bfloat16, float16 or float32"));
  const auto& activations = options.activations;
  if (activations != "auto" && activations != "int8" && activations != "bf16")
    return Fail(ErrorCode::kUsage,
                StrCat("--activations '", activations, "' is unknown; use auto, int8 or bf16"));
  if (options.head_dtype != "auto" && options.head_dtype != "int8")
    return Fail(ErrorCode::kUsage,
                StrCat("--head-dtype '", options.head_dtype, "' is unknown; use auto or int8"));
  if (options.smt != "off" && options.smt != "on")
    return Fail(ErrorCode::kUsage, StrCat("--smt '", options.smt, "' is unknown; use off or on"));
  PINION_TRY(ResolveKvDtype(options, kernels::Dtype::kF32));
  PINION_TRY(ChooseIsa(options.isa));
  PINION_TRY(AtLeastOne(options.tensor_parallel, "--tensor-parallel-size"));
  if (options.tensor_parallel > kMaxRanks)
    return Fail(ErrorCode::kUsage, StrCat("--tensor-parallel-size is ", options.tensor_parallel,
                                          ", want at most ", kMaxRanks));
  PINION_TRY(AtLeastOne(options.max_num_batched_tokens, "--max-num-batched-tokens"));
  PINION_TRY(AtLeastOne(options.max_num_seqs, "--max-num-seqs"));
  if (options.max_model_len) PINION_TRY(AtLeastOne(*options.max_model_len, "--max-model-len"));
  if (options.max_step_ms && (*options.max_step_ms < 0 || *options.max_step_ms > kMaxStepMs))
    return Fail(ErrorCode::kUsage, StrCat("--max-step-ms is ", *options.max_step_ms, ", want 1 to ",
                                          kMaxStepMs, ", or 0 for no bound"));
  if (options.block_size < 16 || options.block_size > 1024 || options.block_size % 16 != 0)
    return Fail(ErrorCode::kUsage, StrCat("--block-size is ", options.block_size,
                                          ", want a multiple of 16 between 16 and 1024"));
  if (options.reserved_cpus && *options.reserved_cpus < 0)
    return Fail(ErrorCode::kUsage,
                StrCat("--reserved-cpus is ", *options.reserved_cpus, ", want 0 or more"));
  if (options.kv_cache_bytes && *options.kv_cache_bytes == 0)
    return Fail(ErrorCode::kUsage,
                "--kv-cache-space is 0; leave it out to size the cache from free memory");
  return {};
}

Result<kernels::KvDtype> ResolveKvDtype(const EngineOptions& options, kernels::Dtype dtype) {
  using kernels::KvDtype;
  static const std::pair<const char*, KvDtype> kNames[] = {
      {"bf16", KvDtype::kBf16},     {"bfloat16", KvDtype::kBf16}, {"fp16", KvDtype::kF16},
      {"float16", KvDtype::kF16},   {"half", KvDtype::kF16},      {"fp32", KvDtype::kF32},
      {"float32", KvDtype::kF32},   {"float", KvDtype::kF32},     {"int8", KvDtype::kI8},
      {"fp8_e5m2", KvDtype::kE5m2}, {"fp8_e4m3", KvDtype::kE4m3}, {"fp8", KvDtype::kE4m3}};
  if (options.kv_cache_dtype == "auto") return kernels::KvDtypeOf(dtype);
  for (const auto& [name, type] : kNames)
    if (options.kv_cache_dtype == name) return type;
  return Fail(ErrorCode::kUsage,
              StrCat("--kv-cache-dtype '", options.kv_cache_dtype,
                     "' is unknown; use auto, bf16, fp16, fp32, int8, fp8_e5m2 or fp8_e4m3"));
}

Json ToJson(const EngineOptions& options) {
  Json object = Json::MakeObject();
  for (const Field& field : Fields()) object.Set(field.name, field.write(options));
  return object;
}

Status FromJson(const Json& object, EngineOptions& options) {
  if (!object.is_object())
    return Fail(ErrorCode::kUsage,
                StrCat("engine options are ", object.type_name(), ", want an object"));
  for (const auto& [key, value] : object.object()) {
    const Field* known = nullptr;
    for (const Field& field : Fields())
      if (key == field.name) known = &field;
    if (!known)
      return Fail(ErrorCode::kUsage,
                  StrCat("unknown engine option '", key, "'; the options are ", FieldNames()));
    if (auto read = known->read(object, options); !read) {
      Error error = std::move(read).error();
      error.code = ErrorCode::kUsage;
      return Unexpected(std::move(error));
    }
  }
  return {};
}

Result<bool> ParseSwitch(const std::string& text, std::string_view name) {
  if (text == "0" || text == "1") return text == "1";
  return Fail(ErrorCode::kUsage, StrCat(name, " is '", text, "', want 0 or 1"));
}

Status ReadEnvironment(EngineOptions& options) {
  if (const char* bind = std::getenv("VLLM_CPU_OMP_THREADS_BIND"); bind && *bind)
    options.threads_bind = bind;
  if (const char* space = std::getenv("VLLM_CPU_KVCACHE_SPACE"); space && *space) {
    PINION_ASSIGN(const uint64_t bytes, ParseBytes(space, kGib, "VLLM_CPU_KVCACHE_SPACE"));
    if (bytes > 0) options.kv_cache_bytes = bytes;  // 0 means "default" to vLLM
  }
  if (const char* reserved = std::getenv("VLLM_CPU_NUM_OF_RESERVED_CPU"); reserved && *reserved) {
    PINION_ASSIGN(const int64_t cpus, ParseInt(reserved, "VLLM_CPU_NUM_OF_RESERVED_CPU"));
    if (cpus < 0 || cpus > std::numeric_limits<int>::max())
      return Fail(ErrorCode::kUsage,
                  StrCat("VLLM_CPU_NUM_OF_RESERVED_CPU is ", cpus, ", want 0 or more"));
    options.reserved_cpus = static_cast<int>(cpus);
  }
  if (const char* prepack = std::getenv("VLLM_CPU_MOE_PREPACK"); prepack && *prepack) {
    PINION_ASSIGN(options.moe_prepack, ParseSwitch(prepack, "VLLM_CPU_MOE_PREPACK"));
  }
  if (const char* kernel = std::getenv("PINION_GEMM_KERNEL"); kernel && *kernel)
    options.gemm_kernel = kernel;
  return {};
}

}  // namespace pinion
