// Arcee (AFM): Llama with an MLP without gate, activated by the square of relu.

#include "engine/spec/architecture.h"

namespace pinion {
namespace {

Status ReadArcee(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_ASSIGN(const bool attention_bias, Optional<bool>(config, "attention_bias", false));
  spec.qkv_bias = spec.o_bias = attention_bias;
  PINION_ASSIGN(spec.mlp_bias, Optional<bool>(config, "mlp_bias", false));
  spec.gated = false;
  spec.names.gate = "";
  return {};
}

constexpr NeutralField kArceeNeutral[] = {{"sliding_window", ""}};

}  // namespace

extern const Architecture kArcee;
const Architecture kArcee = {
    "ArceeForCausalLM",
    "arcee",
    "Arcee (AFM)",
    kArceeNeutral,
    ReadArcee,
    {},
    R"({"hidden_act": "relu2", "rms_norm_eps": 1e-05, "max_position_embeddings": 4096})"};

}  // namespace pinion
