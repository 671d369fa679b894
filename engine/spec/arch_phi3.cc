// Phi-3, Phi-3.5, Phi-4: Llama with fused projections; most use long rope, over a part of each
// head.

#include "engine/spec/architecture.h"

namespace pinion {
namespace {

Status ReadPhi3(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  TensorNames& names = spec.names;
  names.q = names.k = names.v = names.gate = names.up = "";
  names.qkv = "model.layers.{}.self_attn.qkv_proj";
  names.gate_up = "model.layers.{}.mlp.gate_up_proj";
  return ReadWindows(config, spec, [](int) { return true; });
}

constexpr NeutralField kPhi3Neutral[] = {{"attention_bias", "false"}, {"mlp_bias", "false"}};
constexpr std::string_view kPhi3Reads[] = {"layer_types"};

}  // namespace

extern const Architecture kPhi3;
const Architecture kPhi3 = {"Phi3ForCausalLM",
                            "phi3",
                            "Phi-3, Phi-3.5, Phi-4, Phi-4-mini",
                            kPhi3Neutral,
                            ReadPhi3,
                            kPhi3Reads,
                            R"({"rms_norm_eps": 1e-05, "max_position_embeddings": 4096,
        "original_max_position_embeddings": 4096})"};

}  // namespace pinion
