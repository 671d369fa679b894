// Seed-OSS: Llama with biases on queries, keys and values, and one of its own on their output.

#include "engine/spec/architecture.h"

namespace pinion {
namespace {

Status ReadSeedOss(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_ASSIGN(spec.qkv_bias, Optional<bool>(config, "attention_bias", true));
  PINION_ASSIGN(spec.o_bias, Optional<bool>(config, "attention_out_bias", false));
  PINION_ASSIGN(spec.mlp_bias, Optional<bool>(config, "mlp_bias", false));
  return {};
}

constexpr NeutralField kSeedOssNeutral[] = {{"sliding_window", ""}};

}  // namespace

extern const Architecture kSeedOss;
const Architecture kSeedOss = {
    "SeedOssForCausalLM",
    "seed_oss",
    "Seed-OSS",
    kSeedOssNeutral,
    ReadSeedOss,
    {},
    R"({"num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 524288})"};

}  // namespace pinion
