#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace pinion {

// The labels of vllm:cache_config_info for each of `engines`, under vLLM's names and as it writes
// values ("True", "None"), from the JSON of /server_info. Empty for an engine without a KV cache.
std::vector<std::map<std::string, std::string>> CacheConfigsOf(const std::string& server_info,
                                                               size_t engines,
                                                               size_t max_model_len);

}  // namespace pinion
