#include "engine/checkpoint/hf_quant_config.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "engine/base/strings.h"
#include "engine/checkpoint/config_json.h"

namespace pinion {
namespace {

bool HasQuantisation(const Json& config) {
  constexpr const char* kKeys[] = {"quantization_config", "compression_config"};
  return std::any_of(std::begin(kKeys), std::end(kKeys), [&](const char* key) {
    const Json* entry = config.Find(key);
    return entry && !entry->is_null();
  });
}

}  // namespace

Result<std::string> AddQuantisationBeside(const std::string& folder, Json& config) {
  std::string beside = folder + "/hf_quant_config.json";
  if (!config.is_object() || HasQuantisation(config) || access(beside.c_str(), F_OK) != 0)
    return folder + "/config.json";
  PINION_ASSIGN(const Json file, ParseConfigFile(beside));
  const Json* stated = file.Find("quantization");
  if (!stated || !stated->is_object())
    return Fail(ErrorCode::kCorrupt,
                StrCat(beside, ": 'quantization' is ", stated ? stated->type_name() : "missing",
                       ", want an object with 'quant_algo'; if the weights are not quantised, "
                       "remove the file"));
  Json quantisation = *stated;
  quantisation.Set("quant_method", "modelopt");
  config.Set("quantization_config", std::move(quantisation));
  return beside;
}

}  // namespace pinion
