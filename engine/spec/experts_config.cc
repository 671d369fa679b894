// DeepSeek's experts, as the configs of its relatives spell them: the first layers are dense, the
// others have experts beside a shared MLP.

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

// "greedy" chooses among all experts. The other methods choose within the best groups only,
// "noaux_tc" by scores to which a learned correction is added.
Status ReadMethod(const Json& config, const char* usual, RouterSpec& router) {
  PINION_ASSIGN(const std::string method, Optional<std::string>(config, "topk_method", usual));
  if (method == "greedy") return {};
  if (method != "group_limited_greedy" && method != "noaux_tc")
    return Fail(
        ErrorCode::kUnsupported,
        StrCat("'topk_method' is '", method, "', want greedy, group_limited_greedy or noaux_tc"));
  PINION_ASSIGN(router.groups, OptionalIn(config, "n_group", 1, kMaxExperts, 1));
  PINION_ASSIGN(router.top_groups, OptionalIn(config, "topk_group", 1, kMaxExperts, 1));
  router.correction = method == "noaux_tc";
  router.group_score = router.correction ? GroupScore::kTwoBest : GroupScore::kBest;
  return {};
}

Status ReadScore(const Json& config, const char* usual, RouterSpec& router) {
  PINION_ASSIGN(const std::string score, Optional<std::string>(config, "scoring_func", usual));
  if (score != "softmax" && score != "sigmoid")
    return Fail(ErrorCode::kUnsupported,
                StrCat("'scoring_func' is '", score, "', want softmax or sigmoid"));
  router.score = score == "softmax" ? RouterScore::kSoftmax : RouterScore::kSigmoid;
  return {};
}

Status ReadRouter(const Json& config, RouterSpec& router) {
  PINION_ASSIGN(router.experts, RequireIn(config, "n_routed_experts", 1, kMaxExperts));
  PINION_ASSIGN(router.top_k, RequireIn(config, "num_experts_per_tok", 1, kMaxExperts));
  // For DeepSeek-V2, too, as in vLLM, with the scale below in either case. transformers 5 does not
  // look at the field there: it is false in the checkpoints that DeepSeek published.
  PINION_ASSIGN(router.normalise, Optional<bool>(config, "norm_topk_prob", false));
  PINION_ASSIGN(const double scale, Optional<double>(config, "routed_scaling_factor", 1.0));
  router.scale = static_cast<float>(scale);
  return {};
}

// By 'mlp_layer_types' if present, else all but the first.
Status ReadLayerKinds(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(const int dense, OptionalIn(config, "first_k_dense_replace", 0, kMaxLayers, 0));
  PINION_ASSIGN(const int step, OptionalIn(config, "moe_layer_freq", 1, kMaxLayers, 1));
  const Json* types = config.Find("mlp_layer_types");
  const bool listed = types && !types->is_null();
  if (listed && (!types->is_array() || types->array().size() != spec.layer_specs.size()))
    return Fail(ErrorCode::kCorrupt, StrCat("'mlp_layer_types' must be a list of one type for each "
                                            "of ",
                                            spec.layers, " layers"));
  for (size_t i = 0; i < spec.layer_specs.size(); ++i) {
    bool has_experts = i >= static_cast<size_t>(dense) && i % static_cast<size_t>(step) == 0;
    if (listed) {
      const Json& type = types->array()[i];
      has_experts = type.is_string() && type.string() == "sparse";
      if (!has_experts && !(type.is_string() && type.string() == "dense"))
        return Fail(ErrorCode::kUnsupported,
                    StrCat("'mlp_layer_types' holds ", type.Dump().substr(0, 60),
                           ", want dense or sparse"));
    }
    if (has_experts) spec.layer_specs[i].mlp = MlpKind::kExperts;
  }
  return {};
}

Status ReadShapes(const Json& config, DecoderSpec& spec) {
  MoeSpec& moe = spec.moe;
  PINION_ASSIGN(moe.intermediate, RequireIn(config, "moe_intermediate_size", 1, kMaxIntermediate));
  const int64_t most = kMaxIntermediate / moe.intermediate;
  PINION_ASSIGN(const int shared, OptionalIn(config, "n_shared_experts", 0, most, 0));
  moe.shared_intermediate = shared * moe.intermediate;
  const std::string mlp = "model.layers.{}.mlp.";
  spec.names.router = mlp + "gate";
  if (moe.router.correction) spec.names.router_correction = mlp + "gate.e_score_correction_bias";
  spec.names.expert_gate = mlp + "experts.{}.gate_proj";
  spec.names.expert_up = mlp + "experts.{}.up_proj";
  spec.names.expert_down = mlp + "experts.{}.down_proj";
  if (shared == 0) return {};
  spec.names.shared_gate = mlp + "shared_experts.gate_proj";
  spec.names.shared_up = mlp + "shared_experts.up_proj";
  spec.names.shared_down = mlp + "shared_experts.down_proj";
  return {};
}

}  // namespace

Status ReadGroupedExperts(const Json& config, const char* method, const char* score,
                          DecoderSpec& spec) {
  PINION_TRY(ReadRouter(config, spec.moe.router));
  PINION_TRY(ReadMethod(config, method, spec.moe.router));
  PINION_TRY(ReadScore(config, score, spec.moe.router));
  PINION_TRY(ReadLayerKinds(config, spec));
  return ReadShapes(config, spec);
}

}  // namespace pinion
