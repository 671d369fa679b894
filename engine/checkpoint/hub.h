#pragma once

#include <string>

#include "engine/base/result.h"

namespace pinion {

// The local Hugging Face cache: HF_HUB_CACHE, else HF_HOME/hub, else
// XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub.
std::string HubCache();

// The folder of the snapshot that refs/main names for `org/name`. Nothing is downloaded; the error
// says where Pinion looked and how to get the model.
Result<std::string> FindInHub(const std::string& model);

}  // namespace pinion
