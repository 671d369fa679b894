#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/base/strings.h"
#include "engine/model/architecture.h"

namespace pinion {
namespace {

// rope_scaling wins where both are there, as in transformers 5.
const Json* Parameters(const Json& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* found = config.Find(key);
    if (found && !found->is_null()) return found;
  }
  return nullptr;
}

Result<double> RequirePositive(const Json& parameters, std::string_view key) {
  PINION_ASSIGN(const double value, Require<double>(parameters, key));
  // The bound keeps the frequencies normal float32 numbers.
  if (!(value > 0 && value <= 1e12))
    return Fail(ErrorCode::kCorrupt, StrCat("'", key, "' is ", value, ", want above 0 to 1e12"));
  return value;
}

// Top level in transformers 4, among the parameters in 5.
Result<double> Theta(const Json& config, const Json& parameters) {
  for (const Json* place : {&parameters, &config}) {
    const Json* value = place->Find("rope_theta");
    if (value && !value->is_null()) return RequirePositive(*place, "rope_theta");
  }
  return 10000.0;
}

// "rope_type", or "type" as older configs spell it.
Result<std::string> Type(const Json& parameters) {
  PINION_ASSIGN(const std::string old, Optional<std::string>(parameters, "type", "default"));
  return Optional<std::string>(parameters, "rope_type", old);
}

// Llama 3.1's stretching: long waves are slowed by `factor`, short ones stay, those between are
// blended. Source: transformers, modeling_rope_utils.py, _compute_llama3_parameters.
Status StretchLlama3(const Json& parameters, std::vector<double>& inv_freq) {
  PINION_ASSIGN(const double factor, RequirePositive(parameters, "factor"));
  PINION_ASSIGN(const double low, RequirePositive(parameters, "low_freq_factor"));
  PINION_ASSIGN(const double high, RequirePositive(parameters, "high_freq_factor"));
  PINION_ASSIGN(const double original,
                RequirePositive(parameters, "original_max_position_embeddings"));
  if (high <= low)
    return Fail(ErrorCode::kCorrupt, StrCat("'high_freq_factor' is ", high,
                                            ", want more than 'low_freq_factor', ", low));
  for (double& frequency : inv_freq) {
    const double turns =
        original * frequency / (2 * std::numbers::pi);  // within the original length
    const double keep = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    frequency = (1 - keep) * frequency / factor + keep * frequency;
  }
  return {};
}

// A longer sequence is squeezed into the positions seen in training, so `factor` times as many
// positions are usable (which is also how vLLM reads these configs).
Status StretchLinear(const Json& parameters, DecoderSpec& spec, std::vector<double>& inv_freq) {
  PINION_ASSIGN(const double factor, RequirePositive(parameters, "factor"));
  for (double& frequency : inv_freq) frequency /= factor;
  const double positions = spec.max_positions * factor;
  if (positions < 1 || positions > static_cast<double>(kMaxPositions))
    return Fail(ErrorCode::kCorrupt, StrCat("'factor' is ", factor, ", which makes ", positions,
                                            " positions, want 1 to ", kMaxPositions));
  spec.max_positions = static_cast<int>(positions);
  return {};
}

}  // namespace

Status ReadRope(const Json& config, DecoderSpec& spec) {
  const Json* found = Parameters(config);
  const Json parameters = found ? *found : Json::MakeObject();
  if (!parameters.is_object())
    return Fail(ErrorCode::kCorrupt,
                StrCat("the rope parameters are ", parameters.type_name(), ", want an object"));
  constexpr NeutralField kNeutral[] = {{"partial_rotary_factor", "1"},
                                       {"mrope_section", ""},
                                       {"full_attention", ""},
                                       {"sliding_attention", ""}};
  PINION_TRY(CheckNeutralFields(parameters, kNeutral));
  PINION_ASSIGN(const double theta, Theta(config, parameters));
  PINION_ASSIGN(const std::string type, Type(parameters));

  std::vector<double> inv_freq(static_cast<size_t>(spec.head_dim) / 2);
  for (size_t i = 0; i < inv_freq.size(); ++i)
    inv_freq[i] = std::pow(theta, -2.0 * static_cast<double>(i) / spec.head_dim);
  if (type == "llama3") {
    PINION_TRY(StretchLlama3(parameters, inv_freq));
  } else if (type == "linear") {
    PINION_TRY(StretchLinear(parameters, spec, inv_freq));
  } else if (type != "default") {
    return Fail(ErrorCode::kUnsupported,
                StrCat("rope type '", type, "' is not known, want default, linear or llama3"));
  }
  spec.rope_inv_freq.assign(inv_freq.begin(), inv_freq.end());
  return {};
}

}  // namespace pinion
