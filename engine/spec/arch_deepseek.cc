// DeepSeek-V2 and V3 (R1 declares itself V3): latent attention; the first layers are dense, the
// others have experts beside a shared MLP. A token chooses from its best groups of experts only.

#include "engine/spec/architecture.h"

namespace pinion {
namespace {

Status ReadDeepSeek(const Json& config, const char* method, const char* score, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_TRY(ReadLatentAttention(config, spec));
  return ReadGroupedExperts(config, method, score, spec);
}

Status ReadDeepSeekV2(const Json& config, DecoderSpec& spec) {
  return ReadDeepSeek(config, "greedy", "softmax", spec);
}
Status ReadDeepSeekV3(const Json& config, DecoderSpec& spec) {
  return ReadDeepSeek(config, "noaux_tc", "sigmoid", spec);
}

constexpr NeutralField kDeepSeekNeutral[] = {
    {"hidden_act", "silu"}, {"attention_bias", "false"}, {"mlp_bias", "false"}};
constexpr std::string_view kDeepSeekReads[] = {"kv_lora_rank", "n_routed_experts", "q_lora_rank",
                                               "rope_interleave"};

}  // namespace

extern const Architecture kDeepseekV2, kDeepseekV3;
const Architecture kDeepseekV2 = {"DeepseekV2ForCausalLM", "deepseek_v2",  "DeepSeek-V2",
                                  kDeepSeekNeutral,        ReadDeepSeekV2, kDeepSeekReads};
const Architecture kDeepseekV3 = {"DeepseekV3ForCausalLM", "deepseek_v3",  "DeepSeek-V3, R1",
                                  kDeepSeekNeutral,        ReadDeepSeekV3, kDeepSeekReads};

}  // namespace pinion
