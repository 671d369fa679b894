#include <algorithm>
#include <cmath>

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

// If both are present rope_scaling wins, as in transformers 5.
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

// At the top level in transformers 4, among the rope parameters in 5.
Result<double> Theta(const Json& config, const Json& parameters) {
  for (const Json* place : {&parameters, &config}) {
    const Json* value = place->Find("rope_theta");
    if (value && !value->is_null()) return RequirePositive(*place, "rope_theta");
  }
  return 10000.0;
}

// "rope_type", or "type" as older configs spell it; "su" was long rope's first name.
Result<std::string> Type(const Json& parameters) {
  PINION_ASSIGN(const std::string old, Optional<std::string>(parameters, "type", "default"));
  PINION_ASSIGN(const std::string type, Optional<std::string>(parameters, "rope_type", old));
  return type == "su" ? "longrope" : type;
}

// Input of the readers of all types.
struct Source {
  const Json& config;
  const Json& parameters;
  const DecoderSpec& spec;
};

// Sets `value` if the parameters have the field.
Status ReadOver(const Json& parameters, std::string_view key, double& value) {
  const Json* given = parameters.Find(key);
  if (!given || given->is_null()) return {};
  PINION_ASSIGN(value, RequirePositive(parameters, key));
  return {};
}

// The number of elements that are rotated, from the beginning of a head. Proportional rope rotates
// all, if by an angle of 0. 'partial_rotary_factor' counts for every architecture, as in vLLM:
// transformers 5 does not look at it for Llama and some others, but a config that states a part
// describes a model that was trained with it.
Result<int> Dim(const Source& source, const std::string& type) {
  double part = 1;
  PINION_TRY(ReadOver(source.config, "partial_rotary_factor", part));
  PINION_TRY(ReadOver(source.parameters, "partial_rotary_factor", part));
  if (type == "proportional" && part <= 1) part = 1;
  const int dim = part <= 1 ? static_cast<int>(source.spec.head_dim * part) : 0;
  if (dim >= 2 && dim % 2 == 0) return dim;
  return Fail(ErrorCode::kUnsupported,
              StrCat("'partial_rotary_factor' is ", part, " of heads of ", source.spec.head_dim,
                     ", want one that gives an even number of elements up to the whole head"));
}

// The length in training: config.json's own field before that among the parameters, as in
// transformers; without both, the longest sequence.
Status ReadOriginalLength(const Source& source, RopeSpec& rope) {
  constexpr std::string_view kKey = "original_max_position_embeddings";
  rope.original_positions = source.spec.max_positions;
  PINION_TRY(ReadOver(source.parameters, kKey, rope.original_positions));
  return ReadOver(source.config, kKey, rope.original_positions);
}

Status ReadDefault(const Source&, RopeSpec&) { return {}; }

Status ReadLlama3(const Source& source, RopeSpec& rope) {
  const Json& parameters = source.parameters;
  PINION_ASSIGN(rope.factor, RequirePositive(parameters, "factor"));
  PINION_ASSIGN(rope.low_freq_factor, RequirePositive(parameters, "low_freq_factor"));
  PINION_ASSIGN(rope.high_freq_factor, RequirePositive(parameters, "high_freq_factor"));
  PINION_TRY(ReadOriginalLength(source, rope));
  if (rope.high_freq_factor < rope.low_freq_factor)
    return Fail(ErrorCode::kCorrupt,
                StrCat("'high_freq_factor' is ", rope.high_freq_factor,
                       ", want at least 'low_freq_factor', ", rope.low_freq_factor));
  return {};
}

Status ReadFactor(const Source& source, RopeSpec& rope) {
  PINION_ASSIGN(rope.factor, RequirePositive(source.parameters, "factor"));
  rope.original_positions = source.spec.max_positions;
  return {};
}

Status ReadProportional(const Source& source, RopeSpec& rope) {
  PINION_TRY(ReadOver(source.parameters, "factor", rope.factor));
  return ReadOver(source.parameters, "partial_rotary_factor", rope.part);
}

Status ReadDynamic(const Source& source, RopeSpec& rope) {
  PINION_TRY(ReadFactor(source, rope));
  if (rope.dim > 2) return {};
  return Fail(ErrorCode::kUnsupported, "rope type 'dynamic' needs more than 2 rotated elements");
}

// The factor by which scores are sharpened because attention over `factor` times as many tokens is
// flatter (arXiv:2309.00071, sec. 3.4).
double YarnScale(double factor, double weight) {
  return factor > 1 ? 0.1 * weight * std::log(factor) + 1 : 1;
}

Status ReadYarn(const Source& source, RopeSpec& rope) {
  const Json& parameters = source.parameters;
  PINION_TRY(ReadFactor(source, rope));
  PINION_TRY(ReadOriginalLength(source, rope));
  PINION_TRY(ReadOver(parameters, "beta_fast", rope.beta_fast));
  PINION_TRY(ReadOver(parameters, "beta_slow", rope.beta_slow));
  PINION_ASSIGN(rope.truncate, Optional<bool>(parameters, "truncate", true));
  PINION_ASSIGN(const double weight, Optional<double>(parameters, "mscale", 0.0));
  PINION_ASSIGN(const double weight_of_all, Optional<double>(parameters, "mscale_all_dim", 0.0));
  const double of_all = YarnScale(rope.factor, weight_of_all);
  rope.scale = YarnScale(rope.factor, 1);
  if (weight != 0 && weight_of_all != 0) rope.scale = YarnScale(rope.factor, weight) / of_all;
  rope.product_scale = of_all * of_all;
  return ReadOver(parameters, "attention_factor", rope.scale);
}

// One factor per pair.
Result<std::vector<double>> ReadFactors(const Source& source, std::string_view key, int dim) {
  const Json* list = source.parameters.Find(key);
  if (!list || !list->is_array() || list->array().size() != static_cast<size_t>(dim) / 2)
    return Fail(ErrorCode::kCorrupt, StrCat("'", key, "' must be a list of ", dim / 2, " factors"));
  std::vector<double> factors;
  for (const Json& factor : list->array()) {
    if (!factor.is_number() || !(factor.number() >= 1e-6 && factor.number() <= 1e12))
      return Fail(ErrorCode::kCorrupt, StrCat("'", key, "' holds ", factor.Dump().substr(0, 60),
                                              ", want numbers from 1e-6 to 1e12"));
    factors.push_back(factor.number());
  }
  return factors;
}

// Source: transformers, modeling_rope_utils.py, _compute_longrope_parameters.
Status ReadLong(const Source& source, RopeSpec& rope) {
  PINION_TRY(ReadOriginalLength(source, rope));
  if (rope.original_positions <= 1)
    return Fail(ErrorCode::kCorrupt, StrCat("'original_max_position_embeddings' is ",
                                            rope.original_positions, ", want more than 1"));
  rope.factor = source.spec.max_positions / rope.original_positions;
  PINION_TRY(ReadOver(source.parameters, "factor", rope.factor));
  if (rope.factor > 1)
    rope.scale = std::sqrt(1 + std::log(rope.factor) / std::log(rope.original_positions));
  PINION_TRY(ReadOver(source.parameters, "attention_factor", rope.scale));
  PINION_ASSIGN(rope.short_factors, ReadFactors(source, "short_factor", rope.dim));
  PINION_ASSIGN(rope.long_factors, ReadFactors(source, "long_factor", rope.dim));
  return {};
}

struct TypeReader {
  std::string_view type;
  Status (*read)(const Source& source, RopeSpec& rope);
};
constexpr TypeReader kTypes[] = {{"default", ReadDefault},
                                 {"linear", ReadFactor},
                                 {"dynamic", ReadDynamic},
                                 {"llama3", ReadLlama3},
                                 {"yarn", ReadYarn},
                                 {"longrope", ReadLong},
                                 {"proportional", ReadProportional}};

Status ReadType(const Source& source, RopeSpec& rope) {
  std::vector<std::string> known;
  for (const auto& [type, read] : kTypes) {
    if (rope.type == type) return read(source, rope);
    known.emplace_back(type);
  }
  return Fail(ErrorCode::kUnsupported,
              StrCat("rope type '", rope.type, "' is not known, want one of ", Join(known, ", ")));
}

// Sets the stretched length if config.json gives the training length (as vLLM does for these
// configs).
Status Lengthen(const RopeSpec& rope, DecoderSpec& spec) {
  double positions = spec.max_positions;
  if (rope.type == "linear" || rope.type == "dynamic") positions *= rope.factor;
  if (rope.type == "yarn") positions = std::max(positions, rope.original_positions * rope.factor);
  if (positions < 1 || positions > static_cast<double>(kMaxPositions))
    return Fail(ErrorCode::kCorrupt, StrCat("'factor' is ", rope.factor, ", which makes ",
                                            positions, " positions, want 1 to ", kMaxPositions));
  spec.max_positions = static_cast<int>(positions);
  return {};
}

}  // namespace

Result<RopeSpec> ReadRopeParameters(const Json& config, const Json& parameters,
                                    const DecoderSpec& spec) {
  if (!parameters.is_object())
    return Fail(ErrorCode::kCorrupt,
                StrCat("the rope parameters are ", parameters.type_name(), ", want an object"));
  constexpr NeutralField kNeutral[] = {
      {"mrope_section", ""}, {"full_attention", ""}, {"sliding_attention", ""}};
  PINION_TRY(CheckNeutralFields(parameters, kNeutral));
  const Source source{config, parameters, spec};
  RopeSpec rope;
  PINION_ASSIGN(rope.type, Type(parameters));
  PINION_ASSIGN(rope.dim, Dim(source, rope.type));
  PINION_ASSIGN(rope.theta, Theta(config, parameters));
  PINION_TRY(ReadType(source, rope));
  return rope;
}

Json WithDefaultRope(Json config, std::string_view parameters) {
  if (!Parameters(config)) config.Set("rope_parameters", Json::Parse(parameters).value());
  return config;
}

Json WithFullRope(Json config) {
  const Json* both = config.Find("rope_parameters");
  if (both && both->Find("full_attention"))
    config.Set("rope_parameters", Json(*both->Find("full_attention")));
  return config;
}

Status AddWindowRope(const Json& config, const Json& parameters, DecoderSpec& spec) {
  const Json* both = config.Find("rope_parameters");
  const Json* stated = both ? both->Find("sliding_attention") : nullptr;
  PINION_ASSIGN(const RopeSpec rope,
                ReadRopeParameters(config, stated ? *stated : parameters, spec));
  spec.ropes.push_back(rope);
  for (LayerSpec& layer : spec.layer_specs) layer.rope = layer.window > 0 ? 1 : 0;
  return {};
}

Status ReadRope(const Json& config, DecoderSpec& spec) {
  const Json* found = Parameters(config);
  PINION_ASSIGN(const RopeSpec rope,
                ReadRopeParameters(config, found ? *found : Json::MakeObject(), spec));
  spec.ropes = {rope};
  return Lengthen(rope, spec);
}

}  // namespace pinion
