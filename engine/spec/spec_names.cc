#include "engine/spec/spec_names.h"

#include <cmath>

#include "engine/base/strings.h"
#include "engine/base/words.h"

namespace pinion {

const char* Name(kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::kSilu:
      return "silu";
    case kernels::Activation::kGeluTanh:
      return "gelu_tanh";
    case kernels::Activation::kGeluErf:
      return "gelu_erf";
    case kernels::Activation::kRelu:
      return "relu";
    case kernels::Activation::kSigmoid:
      return "sigmoid";
    case kernels::Activation::kRelu2:
      return "relu2";
  }
  return "";
}
const char* Name(NormKind norm) { return norm == NormKind::kRms ? "rms" : "layer"; }
const char* Name(QkNorm norm) {
  return norm == QkNorm::kNone ? "none" : norm == QkNorm::kPerHead ? "per_head" : "whole";
}

std::string MlpName(const DecoderSpec& spec) {
  return StrCat(Name(spec.activation), spec.gated ? "_gated" : "");
}

std::string MlpWords(const DecoderSpec& spec) {
  const auto words = [&]() -> const char* {
    switch (spec.activation) {
      case kernels::Activation::kGeluTanh:
        return "GELU (tanh)";
      case kernels::Activation::kGeluErf:
        return "GELU (erf)";
      case kernels::Activation::kSilu:
        return "SiLU";
      case kernels::Activation::kRelu:
        return "ReLU";
      case kernels::Activation::kRelu2:
        return "squared ReLU";
      default:
        return Name(spec.activation);
    }
  };
  return StrCat(spec.gated ? "gated " : "", words());
}

std::string InLayers(const DecoderSpec& spec, size_t count) {
  const auto layers = static_cast<size_t>(spec.layers);
  return count == layers ? "in every layer"
                         : StrCat("in ", count, " of ", Counted(layers, "layer"));
}

std::string Plain(double number) {
  if (number < 1000) return StrCat(number);
  return Grouped(static_cast<uint64_t>(std::llround(number)));
}

std::string NormPlaces(const TensorNames& names) {
  const bool before = !names.attention_norm.empty(), after = !names.attention_post_norm.empty();
  return before && after ? "before_and_after" : after ? "after" : "before";
}

std::vector<std::string> Biases(const DecoderSpec& spec) {
  std::vector<std::string> parts;
  if (spec.qkv_bias) parts.emplace_back("q k v");
  if (spec.o_bias) parts.emplace_back("o");
  if (spec.mlp_bias) parts.emplace_back("MLP");
  if (spec.moe.bias) parts.emplace_back("experts");
  if (spec.moe.router.bias) parts.emplace_back("router");
  if (spec.norm_bias) parts.emplace_back("norms");
  return parts;
}

const char* Name(MixerKind mixer) {
  return mixer == MixerKind::kDeltaNet       ? "delta_net"
         : mixer == MixerKind::kShortConv    ? "short_conv"
         : mixer == MixerKind::kMamba        ? "mamba2"
         : mixer == MixerKind::kNone         ? "none"
         : Attends(mixer) && HasMamba(mixer) ? "attention_mamba2"
                                             : "attention";
}

const char* Name(MlpKind mlp) {
  return mlp == MlpKind::kDense ? "dense" : mlp == MlpKind::kExperts ? "experts" : "none";
}

}  // namespace pinion
