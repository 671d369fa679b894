// Granite: Llama with multipliers for the embedding, the attention scores, each part's contribution
// to the residual stream, and the logits.

#include "engine/spec/architecture.h"

namespace pinion {
namespace {

Status ReadGranite(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_ASSIGN(const bool attention_bias, Optional<bool>(config, "attention_bias", false));
  spec.qkv_bias = spec.o_bias = attention_bias;
  PINION_ASSIGN(spec.mlp_bias, Optional<bool>(config, "mlp_bias", false));
  PINION_ASSIGN(spec.embedding_multiplier, OptionalPositive(config, "embedding_multiplier", 1));
  PINION_ASSIGN(spec.attention_scale, OptionalPositive(config, "attention_multiplier", 1));
  PINION_ASSIGN(spec.residual_multiplier, OptionalPositive(config, "residual_multiplier", 1));
  PINION_ASSIGN(const float scaling, OptionalPositive(config, "logits_scaling", 1));
  spec.logit_multiplier = 1 / scaling;
  return {};
}

constexpr NeutralField kGraniteNeutral[] = {{"sliding_window", ""}};
constexpr std::string_view kGraniteReads[] = {"attention_multiplier", "embedding_multiplier",
                                              "residual_multiplier", "logits_scaling"};

}  // namespace

extern const Architecture kGranite;
const Architecture kGranite = {"GraniteForCausalLM", "granite",   "Granite 3",
                               kGraniteNeutral,      ReadGranite, kGraniteReads};

}  // namespace pinion
