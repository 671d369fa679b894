#include "engine/serve/cache_config.h"

#include <utility>

#include "engine/base/json.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

using Labels = std::map<std::string, std::string>;

// vLLM's values for features that are not here: tools that join or split by these labels find them.
const std::pair<const char*, const char*> kAbsent[] = {
    {"calculate_kv_scales", "False"},   {"cpu_offload_gb", "0"},
    {"gpu_memory_utilization", "None"}, {"is_attention_free", "False"},
    {"kv_offloading_size", "None"},     {"kv_sharing_fast_prefill", "False"},
    {"num_cpu_blocks", "None"},         {"num_gpu_blocks_override", "None"},
    {"sliding_window", "None"}};

const std::pair<const char*, const char*> kNumbers[] = {{"block_tokens", "block_size"},
                                                        {"blocks", "num_gpu_blocks"},
                                                        {"tokens", "kv_cache_size_tokens"},
                                                        {"bytes", "kv_cache_memory_bytes"}};

Labels CacheConfigOf(const Json& info, size_t max_model_len) {
  const Json* cache = info.Find("kv_cache");
  if (!cache) return {};
  Labels labels(std::begin(kAbsent), std::end(kAbsent));
  for (const auto& [ours, theirs] : kNumbers)
    if (const Json* value = cache->Find(ours)) labels[theirs] = value->Dump();
  if (const Json* tokens = cache->Find("tokens"); tokens && max_model_len > 0)
    labels["kv_cache_max_concurrency"] =
        StrCat(tokens->number() / static_cast<double>(max_model_len));
  if (const Json* dtype = cache->Find("dtype"); dtype && dtype->is_string())
    labels["cache_dtype"] = dtype->string();
  const Json* options = info.Find("options");
  const Json* caching = options ? options->Find("prefix_caching") : nullptr;
  const bool caches = caching && caching->is_bool() && caching->boolean();
  labels["enable_prefix_caching"] = caches ? "True" : "False";
  if (caches) labels["prefix_caching_hash_algo"] = "siphash";
  return labels;
}

}  // namespace

std::vector<Labels> CacheConfigsOf(const std::string& server_info, size_t engines,
                                   size_t max_model_len) {
  const Json info = Json::Parse(server_info).value_or(Json());
  const Json* replicas = info.Find("replicas");
  std::vector<Labels> configs;
  for (size_t i = 0; i < engines; ++i)
    configs.push_back(CacheConfigOf(
        replicas && i < replicas->array().size() ? replicas->array()[i] : info, max_model_len));
  return configs;
}

}  // namespace pinion
