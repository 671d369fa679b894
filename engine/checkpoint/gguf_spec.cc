// Corrects a spec that was read from a GGUF file's metadata by the file's tensors.

#include <algorithm>
#include <string_view>

#include "engine/base/strings.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_architectures.h"
#include "engine/checkpoint/gguf_rope.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

bool HoldsAny(const GgufHeader& header, std::string_view suffix) {
  return std::any_of(header.tensors.begin(), header.tensors.end(),
                     [&](const GgufTensor& tensor) { return tensor.name.ends_with(suffix); });
}

// Each expert becomes a tensor by itself, as a part of the file's tensors, if checkpoints hold all
// experts in one.
void NameExpertsApart(DecoderSpec& spec) {
  TensorNames& names = spec.names;
  if (names.experts_gate_up.empty()) return;
  spec.moe.tensors = ExpertTensors::kEach;
  names.experts_gate_up = names.experts_down = "";
  const std::string expert = "model.layers.{}.experts.{}.";
  names.expert_gate = expert + "gate_proj";
  names.expert_up = expert + "up_proj";
  names.expert_down = expert + "down_proj";
}

// Every expert is to be looked up by its name; a file that holds none of them is refused before.
Status CheckExperts(const GgufHeader& header, const DecoderSpec& spec) {
  const int experts = spec.moe.router.experts;
  for (int layer = 0; layer < spec.layers; ++layer) {
    if (spec.layer_specs[static_cast<size_t>(layer)].mlp != MlpKind::kExperts) continue;
    const std::string name = LayerTensor("blk.{}.ffn_down_exps.weight", layer);
    const GgufTensor* held = header.Find(name);
    if (!held)
      return Fail(ErrorCode::kCorrupt,
                  StrCat("there is no tensor '", name, "', want one of ", experts, " experts"));
    if (held->shape.front() != experts)
      return Fail(ErrorCode::kCorrupt, StrCat("tensor '", name, "' holds ", held->shape.front(),
                                              " experts, its metadata asks for ", experts));
  }
  return {};
}

// Gate and up are two tensors in files of some models whose checkpoints have one.
void NameGatesApart(const GgufHeader& header, TensorNames& names) {
  const std::string mlp = "model.layers.{}.mlp.", shared = "model.layers.{}.shared_mlp.";
  if (!names.gate_up.empty() && HoldsAny(header, ".ffn_gate.weight")) {
    names.gate_up = "";
    names.gate = mlp + "gate_proj";
    names.up = mlp + "up_proj";
  }
  if (!names.shared_gate_up.empty() && HoldsAny(header, ".ffn_gate_shexp.weight")) {
    names.shared_gate_up = "";
    names.shared_gate = shared + "gate_proj";
    names.shared_up = shared + "up_proj";
  }
}

// DeltaNet's projections. Checkpoints of Qwen3-Next, and the GGUF files of its first weeks, hold
// them by key head in two tensors; later files hold them apart, but for b and a.
void NameDeltaApart(const GgufHeader& header, TensorNames& names) {
  if (names.delta_qkvz.empty() || HoldsAny(header, ".ssm_in.weight")) return;
  names.delta_qkvz = names.delta_ba = "";
  const std::string part = "model.layers.{}.linear_attn.";
  names.delta_qkv = part + "in_proj_qkv";
  names.delta_z = part + "in_proj_z";
  names.delta_b = part + "in_proj_b";
  names.delta_a = part + "in_proj_a";
}

}  // namespace

Status ApplyGguf(const GgufFile& gguf, DecoderSpec& spec) {
  PINION_ASSIGN(const GgufArchitecture* architecture, FindGgufArchitecture(gguf.header));
  if (architecture->whole_norms) spec.norm_offset = 0;
  PINION_TRY(CheckExperts(gguf.header, spec));
  NameExpertsApart(spec);
  NameGatesApart(gguf.header, spec.names);
  NameDeltaApart(gguf.header, spec.names);
  return ApplyGgufRope(gguf, spec);
}

}  // namespace pinion
