#include "engine/checkpoint/gguf_layers.h"

#include <algorithm>
#include <string>
#include <vector>

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

constexpr std::string_view kKvHeads = "attention.head_count_kv", kWidths = "feed_forward_length",
                           kPattern = "attention.sliding_window_pattern",
                           kWindowHead = "attention.key_length_swa";

// Does not count the trailing layers, which predict further tokens.
Status CopyDepth(GgufTranslation& translation) {
  PINION_ASSIGN(const int64_t all, translation.WholeOr("block_count", 0));
  PINION_ASSIGN(const int64_t further, translation.WholeOr("nextn_predict_layers", 0));
  const int64_t layers = all - further;
  if (layers < 1 || layers > kMaxLayers)
    return Fail(ErrorCode::kCorrupt,
                StrCat("'block_count' is ", all, ", ", further,
                       " of them to predict further tokens, want 1 to ", kMaxLayers, " others"));
  translation.Set("num_hidden_layers", layers, "block_count");
  return {};
}

// Ordinary heads: one width, of which the first part may be rotated.
Status CopyHeads(GgufTranslation& translation) {
  PINION_ASSIGN(const int64_t heads, translation.WholeOr("attention.head_count", 0));
  PINION_ASSIGN(const int64_t hidden, translation.WholeOr("embedding_length", 0));
  const int64_t usual = heads > 0 ? hidden / heads : 0;
  PINION_ASSIGN(const int64_t key, translation.WholeOr("attention.key_length", usual));
  PINION_ASSIGN(const int64_t value, translation.WholeOr("attention.value_length", key));
  PINION_ASSIGN(const int64_t rotated, translation.WholeOr("rope.dimension_count", key));
  if (key != value)
    return Fail(ErrorCode::kUnsupported,
                StrCat("'attention.key_length' is ", key, " and 'attention.value_length' ", value,
                       ", want the same width"));
  if (rotated > key)
    return Fail(ErrorCode::kCorrupt, StrCat("'rope.dimension_count' is ", rotated,
                                            ", want at most the heads' width, ", key));
  if (translation.Find("attention.key_length"))
    translation.Set("head_dim", key, "attention.key_length");
  else
    translation.Set("head_dim", key);
  if (!translation.Find(kKvHeads)) translation.Set("num_key_value_heads", heads);
  if (translation.Find("rope.dimension_count"))
    translation.Set("partial_rotary_factor",
                    static_cast<double>(rotated) / static_cast<double>(key));
  return {};
}

// Latent heads: the rotated part is in the fields, the rest of a key is not.
Status CopyLatentHeads(GgufTranslation& translation) {
  PINION_ASSIGN(const int64_t key, translation.WholeOr("attention.key_length_mla", 0));
  PINION_ASSIGN(const int64_t rotated, translation.WholeOr("rope.dimension_count", 0));
  if (key == 0)
    return Fail(ErrorCode::kUnsupported,
                "there is no 'attention.key_length_mla': the file is of early 2025 or older; "
                "convert the model with a current llama.cpp");
  translation.Set("qk_nope_head_dim", key - rotated);
  if (!translation.Find("expert_group_count")) {  // as of models without groups
    translation.Set("n_group", 1);
    translation.Set("topk_group", 1);
  }
  return {};
}

size_t LayersOf(const GgufTranslation& translation) {
  return static_cast<size_t>(translation.Whole("num_hidden_layers"));
}

Result<const Json::Array*> ListOf(const GgufTranslation& translation, std::string_view key) {
  const Json* list = translation.Find(key);
  const bool listed = list && list->is_array();
  if (listed && list->array().size() >= LayersOf(translation)) return &list->array();
  const std::string found = listed ? StrCat("has ", list->array().size(), " entries")
                            : list ? StrCat("is ", list->type_name())
                                   : "is missing";
  return Fail(ErrorCode::kCorrupt,
              StrCat("'", key, "' ", found, ", want a list with an entry for each of ",
                     LayersOf(translation), " layers"));
}

bool IsTrue(const Json& value) { return value == Json(true) || value == Json(1); }

// The layers for which the list of this key is true are of one type; the others attend to all.
Status SetLayerTypes(std::string_view key, const char* type, GgufTranslation& translation) {
  PINION_ASSIGN(const Json::Array* list, ListOf(translation, key));
  Json types = Json::MakeArray();
  for (size_t layer = 0; layer < LayersOf(translation); ++layer)
    types.Append(IsTrue((*list)[layer]) ? type : "full_attention");
  translation.Set("layer_types", std::move(types));
  return {};
}

// The whole numbers of all layers, which may have one in common.
Result<std::vector<int64_t>> ByLayer(const GgufTranslation& translation, std::string_view key) {
  const size_t layers = LayersOf(translation);
  const Json* value = translation.Find(key);
  if (!value || !value->is_array()) {
    PINION_ASSIGN(const int64_t common, translation.WholeOr(key, 0));
    return std::vector<int64_t>(layers, common);
  }
  PINION_ASSIGN(const Json::Array* list, ListOf(translation, key));
  std::vector<int64_t> numbers;
  for (size_t layer = 0; layer < layers; ++layer) {
    const Json& own = (*list)[layer];
    if (!own.is_int() || own.integer() < 0)
      return Fail(ErrorCode::kCorrupt,
                  StrCat("'", key, "' holds ", own.Dump().substr(0, 60), ", want whole numbers"));
    numbers.push_back(own.integer());
  }
  return numbers;
}

// In Gemma 4, layers with a window have heads of another width than the others. The others may
// also have another number of KV heads, or use their keys as values.
Status CopyTwoHeads(const GgufHeader& header, GgufTranslation& translation) {
  PINION_ASSIGN(const int64_t narrow, translation.WholeOr(kWindowHead, 0));
  PINION_ASSIGN(const int64_t value, translation.WholeOr("attention.value_length_swa", narrow));
  PINION_ASSIGN(const int64_t rotated, translation.WholeOr("rope.dimension_count_swa", narrow));
  if (value != narrow || rotated != narrow)
    return Fail(ErrorCode::kUnsupported,
                StrCat("in layers with a window keys are ", narrow, " wide, values ", value,
                       " and ", rotated, " of a head are rotated, want the same width"));
  PINION_ASSIGN(const Json::Array* slides, ListOf(translation, kPattern));
  PINION_ASSIGN(const std::vector<int64_t> kv_heads, ByLayer(translation, kKvHeads));
  Json own = Json::MakeObject();
  int64_t windowed = 0;
  bool has_values = true;
  for (size_t layer = 0; layer < kv_heads.size(); ++layer) {
    if (IsTrue((*slides)[layer])) {
      if (windowed > 0 && windowed != kv_heads[layer])
        return Fail(ErrorCode::kUnsupported,
                    StrCat("'", kKvHeads, "' holds ", windowed, " and ", kv_heads[layer],
                           " for layers with a window, want the same number"));
      windowed = kv_heads[layer];
      continue;
    }
    if (own.object().empty())
      has_values = header.Find(StrCat("blk.", layer, ".attn_v.weight")) != nullptr;
    own.Set(StrCat(layer), Json::Object{{"head_dim", translation.Whole("head_dim")},
                                        {"num_key_value_heads", kv_heads[layer]}});
  }
  translation.Set("head_dim", narrow);
  if (windowed > 0) translation.Set("num_key_value_heads", windowed);
  translation.Set("attention_k_eq_v", !has_values);
  translation.Set("per_layer_config", std::move(own));
  return {};
}

// The layers with a window, if the file lists them; else the architecture's rule decides.
Status CopyWindows(GgufTranslation& translation) {
  PINION_ASSIGN(const int64_t window, translation.WholeOr("attention.sliding_window", 0));
  translation.Set("sliding_window", window > 0 ? Json(window) : Json(), "attention.sliding_window");
  const Json* pattern = translation.Find(kPattern);
  if (window == 0 || !pattern) return {};
  if (!pattern->is_array()) {
    translation.Set("sliding_window_pattern", *pattern);
    return {};
  }
  return SetLayerTypes(kPattern, "sliding_attention", translation);
}

// If the file lists the widths of all layers, config.json has one of them: that of an MLP, of
// which a layer with 0 has none, or that of the first layers, which later ones double (Gemma 4).
// Configs of other architectures have lists, too.
Status CopyWidths(const GgufArchitecture& architecture, GgufTranslation& translation) {
  const Json* list = translation.Find(kWidths);
  if (!list || !list->is_array()) return {};
  PINION_ASSIGN(const std::vector<int64_t> widths, ByLayer(translation, kWidths));
  const int64_t widest = *std::max_element(widths.begin(), widths.end());
  if (!architecture.without_heads.empty()) {
    translation.Set("intermediate_size", widest);
  } else if (translation.Find(kWindowHead)) {
    translation.Set("intermediate_size", widths[0]);
    translation.Set("use_double_wide_mlp", widest % 2 == 0 && widest / 2 == widths[0]);
  }
  return {};
}

// A layer without KV heads does not attend. If the file lists widths and its own is not 0, it is an
// MLP or a mixture alone; else it is the mixer that the architecture has in attention's place.
Status CopyMixersByHeads(const GgufArchitecture& architecture, GgufTranslation& translation) {
  const Json* list = translation.Find(kKvHeads);
  const bool all_attend = architecture.without_heads.empty() && !(list && list->is_array());
  if (all_attend || translation.Find(kWindowHead)) return {};
  if (auto listed = ListOf(translation, kKvHeads); !listed)
    return Unexpected(std::move(listed).error());
  PINION_ASSIGN(const std::vector<int64_t> kv_heads, ByLayer(translation, kKvHeads));
  PINION_ASSIGN(const std::vector<int64_t> widths, ByLayer(translation, kWidths));
  const Json* of_mlps = translation.Find(kWidths);
  const bool alone = of_mlps && of_mlps->is_array();
  int64_t most = 0;
  Json types = Json::MakeArray(), attending = Json::MakeArray();
  for (size_t layer = 0; layer < kv_heads.size(); ++layer) {
    const int64_t here = kv_heads[layer];
    if ((here > 0 && most > 0 && here != most) || (here == 0 && architecture.without_heads.empty()))
      return Fail(ErrorCode::kUnsupported,
                  StrCat("'", kKvHeads, "' holds ", here, ", want the same number for all layers",
                         architecture.without_heads.empty() ? "" : ", or 0"));
    most = std::max(most, here);
    if (here > 0) attending.Append(static_cast<int64_t>(layer));
    if (here > 0)
      types.Append("full_attention");
    else if (alone && widths[layer] > 0)
      types.Append(translation.Find("expert_count") ? "moe" : "mlp");
    else
      types.Append(architecture.without_heads);
  }
  translation.Set("num_key_value_heads", most);
  if (architecture.without_heads.empty()) return {};
  if (architecture.layer_list.empty())
    translation.Set("attn_layer_indices", std::move(attending));
  else
    translation.Set(architecture.layer_list, std::move(types));
  return {};
}

// The layers with a state, if the file lists them; else the architecture's rule decides.
Status CopyRecurrentLayers(GgufTranslation& translation) {
  constexpr std::string_view kKey = "attention.recurrent_layers";
  if (!translation.Find(kKey)) return {};
  return SetLayerTypes(kKey, "linear_attention", translation);
}

// Files state the width of all heads with a state together.
Status CopyStateHeads(const GgufArchitecture& architecture, GgufTranslation& translation) {
  if (architecture.state_head.empty()) return {};
  PINION_ASSIGN(const int64_t inner, translation.WholeOr("ssm.inner_size", 0));
  PINION_ASSIGN(const int64_t heads, translation.WholeOr("ssm.time_step_rank", 0));
  if (heads < 1 || inner < 1 || inner % heads != 0)
    return Fail(ErrorCode::kCorrupt,
                StrCat("'ssm.inner_size' is ", inner, " and 'ssm.time_step_rank' is ", heads,
                       ", want both above 0 and the first a multiple of the second"));
  translation.Set(architecture.state_head, inner / heads);
  return {};
}

}  // namespace

Status CopyGgufLayers(const GgufHeader& header, const GgufArchitecture& architecture,
                      GgufTranslation& translation) {
  PINION_TRY(CopyDepth(translation));
  PINION_TRY(architecture.latent ? CopyLatentHeads(translation) : CopyHeads(translation));
  if (translation.Find(kWindowHead)) PINION_TRY(CopyTwoHeads(header, translation));
  PINION_TRY(CopyMixersByHeads(architecture, translation));
  PINION_TRY(CopyWidths(architecture, translation));
  PINION_TRY(CopyWindows(translation));
  PINION_TRY(CopyRecurrentLayers(translation));
  return CopyStateHeads(architecture, translation);
}

}  // namespace pinion
