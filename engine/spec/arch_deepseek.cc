// DeepSeek-V2, V3 (R1 declares itself V3) and V3.2: latent attention; the first layers are dense,
// the others have experts beside a shared MLP. A token chooses from its best groups of experts
// only. In V3.2 it also chooses the tokens that it attends to.

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

Status ReadDeepSeek(const Json& given, const char* method, const char* score, DecoderSpec& spec) {
  const Json config = WithRotatedHead(given);
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

Status CheckIndexed(const Json& config) {
  const Json* types = config.Find("layer_types");
  if (!types || types->is_null()) return {};
  if (!types->is_array())
    return Fail(ErrorCode::kCorrupt,
                StrCat("'layer_types' is ", types->type_name(), ", want a list"));
  for (const Json& type : types->array())
    if (!type.is_string() ||
        (type.string() != "indexed_attention" && type.string() != "deepseek_sparse_attention"))
      return Fail(ErrorCode::kUnsupported, StrCat("'layer_types' holds ", type.Dump().substr(0, 60),
                                                  ", want indexed_attention only"));
  return {};
}

Status ReadIndexer(const Json& config, DecoderSpec& spec) {
  PINION_TRY(CheckIndexed(config));
  IndexSpec& index = spec.index;
  PINION_ASSIGN(index.heads, OptionalIn(config, "index_n_heads", 1, kMaxHeads, 64));
  PINION_ASSIGN(index.dim,
                OptionalIn(config, "index_head_dim", spec.latent.rope_dim, kMaxHeadDim, 128));
  PINION_ASSIGN(index.top_k, OptionalIn(config, "index_topk", 1, kMaxPositions, 2048));
  if (spec.latent.q_rank == 0)
    return Fail(ErrorCode::kUnsupported,
                "'q_lora_rank' is absent, want one: the indexer takes compressed queries");
  const std::string part = "model.layers.{}.self_attn.indexer.";
  spec.names.index_q = part + "wq_b";
  spec.names.index_k = part + "wk";
  spec.names.index_weights = part + "weights_proj";
  spec.names.index_k_norm = part + "k_norm";
  return {};
}

Status ReadDeepSeekV32(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadDeepSeekV3(config, spec));
  return ReadIndexer(config, spec);
}

constexpr NeutralField kDeepSeekNeutral[] = {
    {"hidden_act", "silu"}, {"attention_bias", "false"}, {"mlp_bias", "false"}};
constexpr std::string_view kDeepSeekReads[] = {"kv_lora_rank", "n_routed_experts", "q_lora_rank",
                                               "rope_interleave"};
constexpr std::string_view kDeepSeekV32Reads[] = {"kv_lora_rank", "layer_types", "n_routed_experts",
                                                  "q_lora_rank", "rope_interleave"};
constexpr std::string_view kDeepSeekV3Defaults =
    R"({"max_position_embeddings": 4096, "n_group": 8, "topk_group": 4, "n_shared_experts": 1,
        "num_experts_per_tok": 8, "first_k_dense_replace": 3, "norm_topk_prob": true, "routed_scaling_factor": 2.5})";

}  // namespace

extern const Architecture kDeepseekV2, kDeepseekV3, kDeepseekV32;
const Architecture kDeepseekV2 = {"DeepseekV2ForCausalLM",
                                  "deepseek_v2",
                                  "DeepSeek-V2",
                                  kDeepSeekNeutral,
                                  ReadDeepSeekV2,
                                  kDeepSeekReads,
                                  R"({"n_shared_experts": 2})"};
const Architecture kDeepseekV3 = {"DeepseekV3ForCausalLM", "deepseek_v3",  "DeepSeek-V3, R1",
                                  kDeepSeekNeutral,        ReadDeepSeekV3, kDeepSeekReads,
                                  kDeepSeekV3Defaults};
const Architecture kDeepseekV32 = {"DeepseekV32ForCausalLM", "deepseek_v32",  "DeepSeek-V3.2",
                                   kDeepSeekNeutral,         ReadDeepSeekV32, kDeepSeekV32Reads,
                                   kDeepSeekV3Defaults};

}  // namespace pinion
