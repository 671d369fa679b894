#include "engine/checkpoint/gguf_gemma.h"

#include <algorithm>
#include <cmath>

#include "engine/base/strings.h"

namespace pinion {
namespace {

// The share of a standard normal variable's values below `quantile`.
double ShareBelow(double quantile) { return std::erfc(-quantile / std::sqrt(2.0)) / 2; }

Status CopySparsity(GgufTranslation& translation) {
  constexpr std::string_view kKey = "activation_sparsity_scale";
  const Json* quantiles = translation.Find(kKey);
  if (!quantiles) return {};
  if (!quantiles->is_array())
    return Fail(ErrorCode::kCorrupt, StrCat("'", kKey, "' is ", quantiles->type_name(),
                                            ", want a list of one number for each layer"));
  Json shares = Json::MakeArray();
  for (const Json& quantile : quantiles->array()) {
    const bool known = quantile.is_number() && !std::isnan(quantile.number());
    shares.Append(known ? Json(ShareBelow(quantile.number())) : Json());
  }
  translation.Set("activation_sparsity_pattern", std::move(shares));
  return {};
}

}  // namespace

void CopyGemmaScale(GgufTranslation& translation) {
  constexpr int64_t kLargestGemma2 = 46, kLargestGemma3 = 62;
  const int64_t layers = translation.Whole("num_hidden_layers");
  const bool largest = layers == kLargestGemma2 || layers == kLargestGemma3;
  const int64_t heads = std::max<int64_t>(1, translation.Whole("num_attention_heads"));
  translation.Set("query_pre_attn_scalar", largest ? translation.Whole("hidden_size") / heads
                                                   : translation.Whole("head_dim"));
}

Status CopySmallGemma(const GgufHeader& header, GgufTranslation& translation) {
  if (const GgufTensor* table = header.Find("per_layer_token_embd.weight"))
    translation.Set("vocab_size_per_layer_input", table->shape.front());
  if (const GgufTensor* left = header.Find("blk.0.laurel_l.weight"))
    translation.Set("laurel_rank", left->shape.front());
  return CopySparsity(translation);
}

}  // namespace pinion
