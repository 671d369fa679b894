#include "engine/run/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace pinion {
namespace {

using ::testing::HasSubstr;

EngineOptions Good() {
  EngineOptions options;
  options.model = "preset:tiny";
  return options;
}

TEST(EngineOptionsJson, SurvivesARoundTrip) {
  EngineOptions options = Good();
  options.dtype = "float32";
  options.kv_cache_dtype = "fp8_e5m2";
  options.gemm_kernel = "avx2@1";
  options.threads_bind = "0-1|2";
  options.reserved_cpus = 2;
  options.tensor_parallel = 2;
  options.kv_cache_bytes = uint64_t{3} << 29;
  options.block_size = 128;
  options.max_num_batched_tokens = 7;
  options.max_num_seqs = 3;
  options.max_model_len = 77;
  options.max_step_ms = 0;
  options.prefix_caching = false;
  options.seed = ~uint64_t{0};
  options.has_frontend = true;
  options.front_end_bytes = uint64_t{3} << 33;
  options.share_weights = "on";
  options.weight_copy = {5, 1, 3};
  EngineOptions read;
  ASSERT_TRUE(FromJson(ToJson(options), read));
  EXPECT_EQ(ToJson(read), ToJson(options));
  EXPECT_EQ(read.kv_cache_bytes, options.kv_cache_bytes);
  EXPECT_EQ(read.seed, options.seed);
  EXPECT_EQ(read.weight_copy.engines, 3);
  EXPECT_TRUE(read.weight_copy.is_shared() && !Good().weight_copy.is_shared());
}

TEST(EngineOptionsJson, RefusesUnknownFields) {
  EngineOptions options;
  const auto unknown = FromJson(*Json::Parse(R"({"thread_bind":"auto"})"), options);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kUsage);
  EXPECT_THAT(unknown.error().message, HasSubstr("'thread_bind'"));
  EXPECT_THAT(unknown.error().message, HasSubstr("threads_bind"));
  const auto mistyped = FromJson(*Json::Parse(R"({"block_size":"big"})"), options);
  ASSERT_FALSE(mistyped);
  EXPECT_THAT(mistyped.error().message, HasSubstr("block_size"));
}

TEST(EngineOptionsJson, ReadsKvSpaceInGibOrWithAUnit) {
  EngineOptions options;
  ASSERT_TRUE(FromJson(*Json::Parse(R"({"kv_cache_space":0.5})"), options));
  EXPECT_EQ(options.kv_cache_bytes, uint64_t{1} << 29);
  ASSERT_TRUE(FromJson(*Json::Parse(R"({"kv_cache_space":"64MiB"})"), options));
  EXPECT_EQ(options.kv_cache_bytes, uint64_t{64} << 20);
  ASSERT_TRUE(FromJson(*Json::Parse(R"({"kv_cache_space":null})"), options));
  EXPECT_FALSE(options.kv_cache_bytes);
}

TEST(EngineOptionsKvDtype, IsTheWeightsTypeOrTheOneNamed) {
  using kernels::Dtype;
  using kernels::KvDtype;
  EngineOptions options = Good();
  EXPECT_EQ(ResolveKvDtype(options, Dtype::kBf16), KvDtype::kBf16);
  EXPECT_EQ(ResolveKvDtype(options, Dtype::kF16), KvDtype::kF16);
  const std::pair<const char*, KvDtype> named[] = {
      {"bf16", KvDtype::kBf16},     {"bfloat16", KvDtype::kBf16}, {"fp16", KvDtype::kF16},
      {"fp32", KvDtype::kF32},      {"int8", KvDtype::kI8},       {"fp8", KvDtype::kE4m3},
      {"fp8_e4m3", KvDtype::kE4m3}, {"fp8_e5m2", KvDtype::kE5m2}};
  for (const auto& [name, dtype] : named) {
    options.kv_cache_dtype = name;
    EXPECT_TRUE(Validate(options)) << name;
    EXPECT_EQ(ResolveKvDtype(options, Dtype::kF32), dtype) << name;
  }
  options.kv_cache_dtype = "int4";
  const auto refused = Validate(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_THAT(refused.error().message, HasSubstr("--kv-cache-dtype 'int4'"));
  EXPECT_THAT(refused.error().message, HasSubstr("fp8_e5m2 or fp8_e4m3"));
}

TEST(EngineOptionsEnvironment, UnderstandsVllmsVariablesAndOurs) {
  setenv("VLLM_CPU_KVCACHE_SPACE", "2", 1);
  setenv("VLLM_CPU_OMP_THREADS_BIND", "0-1", 1);
  setenv("VLLM_CPU_NUM_OF_RESERVED_CPU", "1", 1);
  setenv("PINION_GEMM_KERNEL", "scalar", 1);
  EngineOptions options = Good();
  EXPECT_TRUE(ReadEnvironment(options));
  EXPECT_EQ(options.kv_cache_bytes, uint64_t{2} << 30);
  EXPECT_EQ(options.threads_bind, "0-1");
  EXPECT_EQ(options.reserved_cpus, 1);
  EXPECT_EQ(options.gemm_kernel, "scalar");
  setenv("VLLM_CPU_KVCACHE_SPACE", "0", 1);
  EngineOptions usual = Good();
  EXPECT_TRUE(ReadEnvironment(usual));
  EXPECT_FALSE(usual.kv_cache_bytes);
  setenv("VLLM_CPU_NUM_OF_RESERVED_CPU", "one", 1);
  const auto bad = ReadEnvironment(options);
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message, HasSubstr("VLLM_CPU_NUM_OF_RESERVED_CPU 'one'"));
  for (const char* name : {"VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND",
                           "VLLM_CPU_NUM_OF_RESERVED_CPU", "PINION_GEMM_KERNEL"})
    unsetenv(name);
}

TEST(EngineOptionsEnvironment, PrepacksExpertsUnlessToldNotTo) {
  EngineOptions options = Good();
  EXPECT_TRUE(options.moe_prepack);
  setenv("VLLM_CPU_MOE_PREPACK", "0", 1);
  EXPECT_TRUE(ReadEnvironment(options));
  EXPECT_FALSE(options.moe_prepack);
  setenv("VLLM_CPU_MOE_PREPACK", "yes", 1);
  const auto bad = ReadEnvironment(options);
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message, HasSubstr("VLLM_CPU_MOE_PREPACK is 'yes', want 0 or 1"));
  unsetenv("VLLM_CPU_MOE_PREPACK");
}

TEST(EngineOptionsRanges, ErrorsNameTheValueAndTheFix) {
  const auto refuse = [](auto change) {
    EngineOptions options = Good();
    change(options);
    const auto status = Validate(options);
    EXPECT_FALSE(status);
    return status ? std::string() : status.error().message;
  };
  EXPECT_TRUE(Validate(Good()));
  EXPECT_THAT(refuse([](auto& o) { o.model.clear(); }), HasSubstr("preset:NAME"));
  EXPECT_THAT(refuse([](auto& o) { o.dtype = "int3"; }), HasSubstr("'int3'"));
  EXPECT_THAT(refuse([](auto& o) { o.isa = "sse9"; }), HasSubstr("scalar"));
  EXPECT_THAT(refuse([](auto& o) { o.tensor_parallel = 0; }), HasSubstr("is 0, want 1 to 256"));
  EXPECT_THAT(refuse([](auto& o) { o.tensor_parallel = 4096; }), HasSubstr("want 1 to 256"));
  EXPECT_THAT(refuse([](auto& o) { o.block_size = 24; }), HasSubstr("multiple of 16"));
  EXPECT_THAT(refuse([](auto& o) { o.max_num_batched_tokens = 0; }), HasSubstr("is 0"));
  EXPECT_THAT(refuse([](auto& o) { o.max_num_seqs = -1; }), HasSubstr("is -1"));
  EXPECT_THAT(refuse([](auto& o) { o.max_model_len = 0; }), HasSubstr("--max-model-len"));
}

}  // namespace
}  // namespace pinion
