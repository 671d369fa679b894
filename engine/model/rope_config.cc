#include <cmath>

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

// Numbers that stretch a rope, by type.
Status ReadLlama3(const Json& parameters, RopeSpec& rope) {
  PINION_ASSIGN(rope.factor, RequirePositive(parameters, "factor"));
  PINION_ASSIGN(rope.low_freq_factor, RequirePositive(parameters, "low_freq_factor"));
  PINION_ASSIGN(rope.high_freq_factor, RequirePositive(parameters, "high_freq_factor"));
  PINION_ASSIGN(rope.original_positions,
                RequirePositive(parameters, "original_max_position_embeddings"));
  if (rope.high_freq_factor <= rope.low_freq_factor)
    return Fail(ErrorCode::kCorrupt,
                StrCat("'high_freq_factor' is ", rope.high_freq_factor,
                       ", want more than 'low_freq_factor', ", rope.low_freq_factor));
  return {};
}

// `factor` times as many positions are usable as in training (which is also how vLLM reads these
// configs).
Status Lengthen(double factor, DecoderSpec& spec) {
  const double positions = spec.max_positions * factor;
  if (positions < 1 || positions > static_cast<double>(kMaxPositions))
    return Fail(ErrorCode::kCorrupt, StrCat("'factor' is ", factor, ", which makes ", positions,
                                            " positions, want 1 to ", kMaxPositions));
  spec.max_positions = static_cast<int>(positions);
  return {};
}

Status ReadLinear(const Json& parameters, DecoderSpec& spec, RopeSpec& rope) {
  PINION_ASSIGN(rope.factor, RequirePositive(parameters, "factor"));
  return Lengthen(rope.factor, spec);
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
  RopeSpec rope;
  rope.dim = spec.head_dim;
  PINION_ASSIGN(rope.theta, Theta(config, parameters));
  PINION_ASSIGN(rope.type, Type(parameters));
  if (rope.type == "llama3") {
    PINION_TRY(ReadLlama3(parameters, rope));
  } else if (rope.type == "linear") {
    PINION_TRY(ReadLinear(parameters, spec, rope));
  } else if (rope.type != "default") {
    return Fail(ErrorCode::kUnsupported,
                StrCat("rope type '", rope.type, "' is not known, want default, linear or llama3"));
  }
  spec.ropes = {rope};
  return {};
}

}  // namespace pinion
