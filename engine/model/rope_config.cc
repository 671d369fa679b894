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

// How much longer sequences lower the entropy of attention (arXiv:2309.00071, sec. 3.4).
double YarnScale(double factor, double weight) {
  return factor > 1 ? 0.1 * weight * std::log(factor) + 1 : 1;
}

Status ReadYarn(const Json& parameters, const DecoderSpec& spec, RopeSpec& rope) {
  PINION_ASSIGN(rope.factor, RequirePositive(parameters, "factor"));
  rope.original_positions = spec.max_positions;
  for (auto [key, value] : {std::pair{"original_max_position_embeddings", &rope.original_positions},
                            {"beta_fast", &rope.beta_fast},
                            {"beta_slow", &rope.beta_slow}}) {
    const Json* given = parameters.Find(key);
    if (given && !given->is_null()) {
      PINION_ASSIGN(*value, RequirePositive(parameters, key));
    }
  }
  PINION_ASSIGN(rope.truncate, Optional<bool>(parameters, "truncate", true));
  PINION_ASSIGN(const double weight, Optional<double>(parameters, "mscale", 0.0));
  PINION_ASSIGN(const double weight_of_all, Optional<double>(parameters, "mscale_all_dim", 0.0));
  const double of_all = YarnScale(rope.factor, weight_of_all);
  rope.scale = YarnScale(rope.factor, 1);
  if (weight != 0 && weight_of_all != 0) rope.scale = YarnScale(rope.factor, weight) / of_all;
  PINION_ASSIGN(rope.scale, Optional<double>(parameters, "attention_factor", rope.scale));
  rope.product_scale = of_all * of_all;
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
  RopeSpec rope;
  rope.dim = spec.head_dim;
  PINION_ASSIGN(rope.theta, Theta(config, parameters));
  PINION_ASSIGN(rope.type, Type(parameters));
  if (rope.type == "llama3") {
    PINION_TRY(ReadLlama3(parameters, rope));
  } else if (rope.type == "linear") {
    PINION_TRY(ReadLinear(parameters, spec, rope));
  } else if (rope.type == "yarn") {
    PINION_TRY(ReadYarn(parameters, spec, rope));
  } else if (rope.type != "default") {
    return Fail(
        ErrorCode::kUnsupported,
        StrCat("rope type '", rope.type, "' is not known, want default, linear, llama3 or yarn"));
  }
  spec.ropes = {rope};
  return {};
}

}  // namespace pinion
