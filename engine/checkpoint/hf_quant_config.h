#pragma once

#include <string>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion {

// NVIDIA's ModelOpt up to 0.29 wrote the quantisation of a checkpoint into hf_quant_config.json
// alone. If the folder has that file and `config`, its config.json, has no quantisation, `config`
// gets the file's as its 'quantization_config', of quant_method "modelopt". Returns the path of the
// file that states the quantisation, whether there is one or not; errors name the file.
Result<std::string> AddQuantisationBeside(const std::string& folder, Json& config);

}  // namespace pinion
