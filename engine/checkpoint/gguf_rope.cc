#include "engine/checkpoint/gguf_rope.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "engine/base/strings.h"

namespace pinion {
namespace {

constexpr std::string_view kFactors = "rope_freqs.weight";
// Pairs that do not turn have a factor of 1e30 (Gemma 4); Llama 3's largest is 32.
constexpr float kStandsStill = 1e20f, kLargestFactor = 1e6f;

// The float32 vector of a name; empty if there is none.
Result<std::vector<float>> ReadVector(const GgufFile& gguf, std::string_view name) {
  for (const GgufTensor& tensor : gguf.header.tensors) {
    if (tensor.name != name) continue;
    if (tensor.type->name != "F32" || tensor.shape.size() != 1 || gguf.files.empty())
      return Fail(ErrorCode::kCorrupt, StrCat("tensor '", name, "' is not an F32 vector"));
    std::vector<float> values(static_cast<size_t>(tensor.shape[0]));
    std::memcpy(values.data(), gguf.Data(tensor), tensor.bytes);
    return values;
  }
  return std::vector<float>();
}

Json Numbers(const std::vector<float>& values) {
  Json list = Json::MakeArray();
  for (const float value : values) list.Append(double{value});
  return list;
}

// Phi-3's factors for sequences up to the original length and beyond it.
Result<bool> CopyLongRope(const GgufFile& gguf, GgufTranslation& translation) {
  PINION_ASSIGN(const std::vector<float> beyond, ReadVector(gguf, "rope_factors_long.weight"));
  PINION_ASSIGN(const std::vector<float> within, ReadVector(gguf, "rope_factors_short.weight"));
  if (beyond.empty() || within.empty()) return false;
  Json scaling = Json::Object{{"rope_type", "longrope"},
                              {"long_factor", Numbers(beyond)},
                              {"short_factor", Numbers(within)}};
  if (const Json* length = translation.Find("rope.scaling.original_context_length"))
    translation.Set("original_max_position_embeddings", *length);
  if (const Json* factor = translation.Find("rope.scaling.attn_factor"))
    scaling.Set("attention_factor", *factor);
  translation.Set("rope_scaling", std::move(scaling));
  return true;
}

// Factors of a proportional rope: 1 for the pairs that turn, then those that stand still.
bool IsProportional(const std::vector<float>& factors) {
  const auto still = std::find_if(factors.begin(), factors.end(),
                                  [](float factor) { return factor >= kStandsStill; });
  return still != factors.end() &&
         std::all_of(factors.begin(), still, [](float factor) { return factor == 1; }) &&
         std::all_of(still, factors.end(), [](float factor) { return factor >= kStandsStill; });
}

// Gemma 4's ropes: a proportional one, and another one of layers with a window.
Result<bool> CopyProportional(const GgufFile& gguf, GgufTranslation& translation) {
  PINION_ASSIGN(const std::vector<float> factors, ReadVector(gguf, kFactors));
  if (!IsProportional(factors)) return false;
  const auto turning = std::count(factors.begin(), factors.end(), 1.0f);
  Json full = Json::Object{{"rope_type", "proportional"},
                           {"partial_rotary_factor",
                            static_cast<double>(turning) / static_cast<double>(factors.size())}};
  Json windowed = Json::Object{{"rope_type", "default"}};
  if (const Json* base = translation.Find("rope.freq_base")) full.Set("rope_theta", *base);
  if (const Json* base = translation.Find("rope.freq_base_swa")) windowed.Set("rope_theta", *base);
  translation.Set("rope_parameters",
                  Json::Object{{"full_attention", full}, {"sliding_attention", windowed}});
  return true;
}

void CopyScaling(const GgufTranslation& translation, std::span<const GgufField> fields,
                 Json& scaling) {
  for (const GgufField& field : fields)
    if (const Json* value = translation.Find(field.from)) scaling.Set(field.to, *value);
}

// llama.cpp's converter stores a tenth of DeepSeek's mscale_all_dim; published models' mscale
// equals it.
void CopyLogMultiplier(const GgufTranslation& translation, Json& scaling) {
  const Json* tenth = translation.Find("rope.scaling.yarn_log_multiplier");
  if (!tenth || !tenth->is_number()) return;
  for (const char* key : {"mscale", "mscale_all_dim"}) scaling.Set(key, tenth->number() * 10);
}

}  // namespace

Status CopyGgufRope(const GgufFile& gguf, const GgufArchitecture& architecture,
                    GgufTranslation& translation) {
  PINION_TRY(translation.Copy("rope.freq_base", "rope_theta", false));
  PINION_ASSIGN(const bool is_long, CopyLongRope(gguf, translation));
  PINION_ASSIGN(const bool is_proportional, CopyProportional(gguf, translation));
  const Json* type = translation.Find("rope.scaling.type");
  if (is_long || is_proportional || !type || *type == Json("none")) return {};
  if ((!(*type == Json("linear")) && !(*type == Json("yarn"))) ||
      !translation.Find("rope.scaling.factor"))
    return Fail(ErrorCode::kUnsupported, StrCat("'rope.scaling.type' is ", type->Dump(),
                                                ", want none, linear or yarn with its factor"));
  Json scaling = Json::Object{{"rope_type", *type}};
  constexpr GgufField kFields[] = {
      {"rope.scaling.factor", "factor"},
      {"rope.scaling.original_context_length", "original_max_position_embeddings"},
      {"rope.scaling.yarn_attn_factor", "attention_factor"},
      {"rope.scaling.yarn_beta_fast", "beta_fast"},
      {"rope.scaling.yarn_beta_slow", "beta_slow"}};
  CopyScaling(translation, kFields, scaling);
  CopyScaling(translation, architecture.rope_fields, scaling);
  if (architecture.latent) CopyLogMultiplier(translation, scaling);
  const Json constants = Json::Parse(architecture.rope_constants).value();
  for (const auto& [key, value] : constants.object()) scaling.Set(key, value);
  translation.Set("rope_scaling", std::move(scaling));
  return {};
}

Status ApplyGgufRope(const GgufFile& gguf, DecoderSpec& spec) {
  PINION_ASSIGN(const std::vector<float> factors, ReadVector(gguf, kFactors));
  if (factors.empty() || spec.ropes.empty()) return {};
  RopeSpec& rope = spec.ropes[0];
  if (factors.size() != static_cast<size_t>(rope.dim) / 2)
    return Fail(ErrorCode::kCorrupt, StrCat("tensor '", kFactors, "' is not an F32 vector of ",
                                            rope.dim / 2, ", half a head"));
  if (rope.type == "proportional") return {};
  for (const float factor : factors)
    if (!(factor > 0 && factor <= kLargestFactor))
      return Fail(ErrorCode::kCorrupt,
                  StrCat("tensor '", kFactors, "' holds ", factor, ", want above 0 to 1e6"));
  rope.wave_factors.assign(factors.begin(), factors.end());
  return {};
}

}  // namespace pinion
