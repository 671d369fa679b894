// Llama (2, 3, 3.1, 3.2, ...).

#include "engine/spec/architecture.h"

namespace pinion {
namespace {

Status ReadLlama(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_ASSIGN(const bool attention_bias, Optional<bool>(config, "attention_bias", false));
  spec.qkv_bias = spec.o_bias = attention_bias;
  PINION_ASSIGN(spec.mlp_bias, Optional<bool>(config, "mlp_bias", false));
  return {};
}

constexpr NeutralField kLlamaNeutral[] = {{"sliding_window", ""}};

}  // namespace

extern const Architecture kLlama;
const Architecture kLlama = {"LlamaForCausalLM", "llama", "Llama 2, 3, 3.1 to 3.3 and their kin",
                             kLlamaNeutral, ReadLlama};

}  // namespace pinion
