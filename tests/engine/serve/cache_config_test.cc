#include "engine/serve/cache_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pinion {
namespace cache_config_tests {
namespace {

using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Pair;
using testing::SizeIs;

constexpr const char* kInfo =
    R"({"options":{"prefix_caching":true},"kv_cache":{"dtype":"bf16","bytes":4096,)"
    R"("block_tokens":32,"blocks":5,"tokens":160}})";

TEST(CacheConfig, HasTheLabelsOfVllm) {
  const auto configs = CacheConfigsOf(kInfo, 1, 64);
  ASSERT_THAT(configs, SizeIs(1));
  EXPECT_THAT(
      configs[0],
      IsSupersetOf({Pair("block_size", "32"), Pair("num_gpu_blocks", "5"),
                    Pair("kv_cache_memory_bytes", "4096"), Pair("kv_cache_size_tokens", "160"),
                    Pair("kv_cache_max_concurrency", "2.5"), Pair("cache_dtype", "bf16"),
                    Pair("enable_prefix_caching", "True"),
                    Pair("prefix_caching_hash_algo", "siphash"), Pair("num_cpu_blocks", "None"),
                    Pair("is_attention_free", "False"), Pair("sliding_window", "None")}));
}

TEST(CacheConfig, SaysThatPrefixesAreNotCached) {
  const auto configs =
      CacheConfigsOf(R"({"options":{"prefix_caching":false},"kv_cache":{"blocks":5}})", 1, 64);
  EXPECT_EQ(configs[0].at("enable_prefix_caching"), "False");
  EXPECT_EQ(configs[0].count("prefix_caching_hash_algo"), 0u);
}

TEST(CacheConfig, IsEachReplicasOwn) {
  const auto configs = CacheConfigsOf(
      R"({"replicas":[{"kv_cache":{"blocks":7}},{"kv_cache":{"blocks":8}}]})", 2, 64);
  EXPECT_EQ(configs[0].at("num_gpu_blocks"), "7");
  EXPECT_EQ(configs[1].at("num_gpu_blocks"), "8");
}

TEST(CacheConfig, IsEmptyWithoutACache) {
  EXPECT_THAT(CacheConfigsOf("{}", 2, 64), testing::Each(IsEmpty()));
  EXPECT_THAT(CacheConfigsOf("", 1, 64), testing::Each(IsEmpty()));
}

}  // namespace
}  // namespace cache_config_tests
}  // namespace pinion
