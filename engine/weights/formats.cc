#include "engine/weights/formats.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "engine/spec/attention_spec.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

constexpr int kMaxFourBitCode = 15;

// Widens `format` until it holds the tensor's codes too.
void Include(const QuantisedTensor& tensor, int& highest, IntegerFormat& format) {
  const CodeRange& range = tensor.range();
  const size_t group = tensor.group() >= tensor.columns() ? 0 : tensor.group();
  format.lowest = std::min(format.lowest, range.lowest);
  highest = std::max(highest, range.highest);
  format.has_offsets = format.has_offsets || range.has_offsets;
  if (format.scale_type != range.scale_type) format.scale_type = kernels::ScaleType::kF16;
  format.group = std::gcd(format.group, group);  // gcd(0, n) is n
}

// One static rounding that covers those of all modules with the same input. (If one calibration
// made them, they are equal.)
kernels::Rounding Cover(const std::vector<StaticRounding>& roundings) {
  float low = 0, high = 0;
  bool equal = true;
  for (const StaticRounding& each : roundings) {
    low = std::min(low, each.scale * static_cast<float>(-128 - each.zero_point));
    high = std::max(high, each.scale * static_cast<float>(127 - each.zero_point));
    equal = equal && each.scale == roundings[0].scale && each.zero_point == roundings[0].zero_point;
  }
  if (equal) return {roundings[0].scale, roundings[0].zero_point};
  const float scale = (high - low) / 255;
  return {scale, static_cast<int32_t>(-128 - low / scale)};
}

class Planner {
 public:
  Planner(const DecoderSpec& spec, const TensorSource& source,
          const std::optional<QuantScheme>& scheme, const FormatChoices& choices)
      : spec_(spec), source_(source), choices_(choices), plan_(choices.dtype) {
    if (!scheme) return;
    const bool fp8 = scheme->method == QuantMethod::kFp8;
    (fp8 ? e4m3_activations_ : activations_) = scheme->activations;
    activation_group_ = static_cast<size_t>(scheme->activation_group);
    activation_powers_ = scheme->activation_powers;
  }

  Result<FormatPlan> Plan() {
    for (int layer = 0; layer < spec_.layers; ++layer)
      for (const MatrixRole role :
           {MatrixRole::kQkv, MatrixRole::kO, MatrixRole::kQueryUp, MatrixRole::kMlpIn,
            MatrixRole::kDown, MatrixRole::kExpertIn, MatrixRole::kExpertDown})
        PINION_TRY(Add(layer, role));
    for (int layer = 0; layer < spec_.layers; ++layer) PINION_TRY(AddLatents(layer));
    PINION_TRY(Add(-1, MatrixRole::kHead));
    return std::move(plan_);
  }

 private:
  Status Add(int layer, MatrixRole role) {
    const std::vector<std::string> modules = ModulesOf(spec_, layer, role);
    if (modules.empty()) return {};
    const std::vector<const QuantisedTensor*> tensors = TensorsOf(modules);
    if (tensors.empty()) return {};
    auto format = FormatOf(tensors, role);
    if (!format) {
      ++plan_.dequantised;
      return {};
    }
    if (activations_ == ActivationRounding::kStatic && role != MatrixRole::kHead) {
      PINION_ASSIGN(format->rounding, RoundingOf(modules));
    }
    if (format->e4m3()) {
      PINION_ASSIGN(format->e4m3_rounding, E4m3RoundingOf(modules));
    }
    plan_.Set(layer, role, *format);
    return {};
  }

  Status AddLatents(int layer) {
    const std::vector<std::string> modules = ModulesOf(spec_, layer, MatrixRole::kLatentUp);
    const std::vector<const QuantisedTensor*> tensors = TensorsOf(modules);
    if (tensors.empty() || !std::all_of(tensors.begin(), tensors.end(), IsE4m3)) return {};
    PINION_ASSIGN(const auto rounding, E4m3RoundingOf(modules));
    if (rounding) plan_.latent_roundings[layer] = *rounding;
    return {};
  }

  static bool IsE4m3(const QuantisedTensor* tensor) { return tensor->range().e4m3; }

  // Empty if one of them is not quantised.
  std::vector<const QuantisedTensor*> TensorsOf(const std::vector<std::string>& modules) const {
    std::vector<const QuantisedTensor*> tensors;
    for (const std::string& module : modules) {
      tensors.push_back(source_.Quantised(module + ".weight"));
      if (!tensors.back()) return {};
    }
    return tensors;
  }

  // Empty if the matrix does not stay in integers.
  std::optional<IntegerFormat> FormatOf(const std::vector<const QuantisedTensor*>& tensors,
                                        MatrixRole role) const {
    IntegerFormat format;
    const bool e4m3 = std::any_of(tensors.begin(), tensors.end(), IsE4m3);
    if (e4m3 && !std::all_of(tensors.begin(), tensors.end(), IsE4m3)) return {};
    const auto product = e4m3 ? std::optional(IntegerProduct::kE4m3) : ProductOf(role);
    if (!product) return {};
    format.product = *product;
    format.outliers_apart =
        *product == IntegerProduct::kInt8 && activations_ == ActivationRounding::kNone;
    format.lowest = 127;
    format.scale_type = tensors[0]->range().scale_type;
    int highest = -128;
    const std::vector<uint32_t>& order = tensors[0]->group_of();
    for (const QuantisedTensor* tensor : tensors) {
      if (tensor->group_of() != order) return {};
      Include(*tensor, highest, format);
    }
    format.bits = format.e2m1() || highest - format.lowest <= kMaxFourBitCode ? 4 : 8;
    if (e4m3) format.lowest = 0;                            // bytes, not numbers
    if (format.e2m1()) format.group = tensors[0]->group();  // never whole rows
    if (format.group != 0 && format.group % kSmallestIntGroup != 0) return {};
    if (order.empty()) return format;
    if (role == MatrixRole::kExpertIn || role == MatrixRole::kExpertDown) return {};
    format.group_of = std::make_shared<const std::vector<uint32_t>>(order);
    return format;
  }

  std::optional<IntegerProduct> ProductOf(MatrixRole role) const {
    const bool rounds = activations_ != ActivationRounding::kNone;
    if (rounds || (role == MatrixRole::kHead && choices_.int8_head)) return IntegerProduct::kInt8;
    return choices_.weight_only;
  }

  Result<kernels::Rounding> RoundingOf(const std::vector<std::string>& modules) const {
    std::vector<StaticRounding> roundings;
    for (const std::string& module : modules) {
      PINION_ASSIGN(const StaticRounding rounding,
                    ReadStaticRounding(
                        module, [&](const std::string& name) { return source_.Stored(name); }));
      roundings.push_back(rounding);
    }
    return Cover(roundings);
  }

  // Empty if the activations of modules in e4m3 are not rounded. Modules with the same input share
  // the largest of their static scales. (If one calibration made them, they are equal; with a
  // smaller one values would overflow, and a larger one costs digits only of values below a
  // 28,672nd of the largest.) Experts that no text of the calibration reached may have none.
  Result<std::optional<kernels::E4m3Rounding>> E4m3RoundingOf(
      const std::vector<std::string>& modules) const {
    kernels::E4m3Rounding rounding;
    if (e4m3_activations_ == ActivationRounding::kNone) return std::nullopt;
    if (e4m3_activations_ == ActivationRounding::kPerToken) {
      rounding.group = activation_group_;
      rounding.powers_of_two = activation_powers_;
      return rounding;
    }
    for (const std::string& module : modules) {
      PINION_ASSIGN(
          const std::optional<float> scale,
          ReadInputScale(module, [&](const std::string& name) { return source_.Stored(name); }));
      rounding.scale = std::max(rounding.scale, scale.value_or(0));
    }
    if (rounding.scale == 0) return std::nullopt;
    return rounding;
  }

  const DecoderSpec& spec_;
  const TensorSource& source_;
  const FormatChoices& choices_;
  // To int8; of e4m3 weights, to e4m3.
  ActivationRounding activations_ = ActivationRounding::kNone,
                     e4m3_activations_ = ActivationRounding::kNone;
  size_t activation_group_ = 0;
  bool activation_powers_ = false;
  FormatPlan plan_;
};

// The modules of all experts, one after the other.
std::vector<std::string> ExpertModules(const DecoderSpec& spec, int layer, MatrixRole role) {
  const TensorNames& names = spec.names;
  std::vector<std::string> modules;
  if (spec.moe.tensors != ExpertTensors::kEach) return modules;  // which is never quantised
  for (int expert = 0; expert < spec.moe.router.experts; ++expert) {
    if (role == MatrixRole::kExpertDown) {
      modules.push_back(ExpertTensor(names.expert_down, layer, expert));
    } else {
      if (spec.gated) modules.push_back(ExpertTensor(names.expert_gate, layer, expert));
      modules.push_back(ExpertTensor(names.expert_up, layer, expert));
    }
  }
  return modules;
}

// The names of a dense MLP, or of the one beside experts, as patterns.
std::vector<std::string> MlpPatterns(const DecoderSpec& spec, bool beside_experts,
                                     MatrixRole role) {
  const TensorNames& names = spec.names;
  if (beside_experts) {
    if (spec.moe.shared_intermediate == 0) return {};
    if (role == MatrixRole::kDown) return {names.shared_down};
    if (!names.shared_gate_up.empty()) return {names.shared_gate_up};
    if (!spec.gated) return {names.shared_up};
    return {names.shared_gate, names.shared_up};
  }
  if (role == MatrixRole::kDown) return {names.down};
  if (!names.gate_up.empty()) return {names.gate_up};
  if (!spec.gated) return {names.up};
  return {names.gate, names.up};
}

// Of latent attention; those that the model lacks are empty.
std::vector<std::string> LatentPatterns(const TensorNames& names, MatrixRole role) {
  if (role == MatrixRole::kO) return {names.o};
  if (role == MatrixRole::kQueryUp) return {names.q_b};
  if (role == MatrixRole::kLatentUp) return {names.kv_b};
  return {names.q_a.empty() ? names.q : names.q_a, names.kv_a};
}

std::vector<std::string> AttentionPatterns(const DecoderSpec& spec, MatrixRole role) {
  const TensorNames& names = spec.names;
  if (spec.latent.kv_rank > 0) return LatentPatterns(names, role);
  if (role == MatrixRole::kQueryUp || role == MatrixRole::kLatentUp) return {};
  if (role == MatrixRole::kO) return {names.o};
  if (!names.qkv.empty()) return {names.qkv};
  return {names.q, names.k, names.v};
}

std::string HeadModule(const DecoderSpec& spec) {
  constexpr size_t kSuffix = std::string_view(".weight").size();
  const std::string& head = spec.tied_head ? spec.names.embedding : spec.names.head;
  return head.substr(0, head.size() - kSuffix);
}

}  // namespace

std::vector<std::string> ModulesOf(const DecoderSpec& spec, int layer, MatrixRole role) {
  if (role == MatrixRole::kHead && !spec.has_head()) return {};
  if (role == MatrixRole::kHead) return {HeadModule(spec)};
  const bool has_experts = spec.layer_specs[static_cast<size_t>(layer)].mlp == MlpKind::kExperts;
  if (role == MatrixRole::kExpertIn || role == MatrixRole::kExpertDown)
    return has_experts ? ExpertModules(spec, layer, role) : std::vector<std::string>();
  const bool is_attention = role != MatrixRole::kMlpIn && role != MatrixRole::kDown;
  // Gated DeltaNet's matrix is made from parts of several tensors too.
  const LayerSpec& kinds = spec.layer_specs[static_cast<size_t>(layer)];
  if (is_attention ? !Attends(kinds.mixer) : kinds.mlp == MlpKind::kNone) return {};
  std::vector<std::string> modules =
      is_attention ? AttentionPatterns(spec, role) : MlpPatterns(spec, has_experts, role);
  std::erase(modules, "");
  if (kinds.keys_as_values || !Caches(kinds)) std::erase(modules, spec.names.v);
  if (!Caches(kinds)) std::erase(modules, spec.names.k);
  for (std::string& module : modules) module = LayerTensor(module, layer);
  return modules;
}

Result<FormatPlan> PlanFormats(const DecoderSpec& spec, const TensorSource& source,
                               const std::optional<QuantScheme>& scheme,
                               const FormatChoices& choices) {
  return Planner(spec, source, scheme, choices).Plan();
}

}  // namespace pinion
