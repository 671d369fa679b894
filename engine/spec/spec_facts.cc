#include "engine/spec/spec_facts.h"

#include <algorithm>
#include <map>

#include "engine/base/strings.h"
#include "engine/spec/attention_spec.h"
#include "engine/spec/kv_tables.h"
#include "engine/spec/spec_names.h"

namespace pinion {
namespace {

std::string RopeText(const RopeSpec& rope) {
  std::string text = StrCat(rope.type, ", base ", rope.theta, ", ", rope.dim, " elements",
                            rope.interleaved ? " in neighbouring pairs" : "");
  for (const auto& [name, value, neutral] : kRopeNumbers)
    if (rope.*value != neutral) text += StrCat(", ", name, " ", rope.*value);
  return text;
}

std::string MultiplierText(const DecoderSpec& spec) {
  std::vector<std::string> parts;
  for (const auto& [name, value, neutral] : kSpecMultipliers)
    if (spec.*value != neutral) parts.push_back(StrCat(name, " ", spec.*value));
  return Join(parts, ", ");
}

std::string WindowText(const DecoderSpec& spec) {
  size_t windowed = 0;
  int window = 0;
  for (const LayerSpec& layer : spec.layer_specs)
    if (layer.window > 0) ++windowed, window = layer.window;
  if (windowed == 0) return "";
  return StrCat(window, spec.bidirectional ? " tokens each way" : " tokens", " in ", windowed,
                " of ", spec.layers, " layers");
}

// How much of a sequence the cache keeps; empty if every layer sees all of it.
std::string CacheText(const DecoderSpec& spec) {
  const bool limits =
      std::any_of(spec.layer_specs.begin(), spec.layer_specs.end(),
                  [](const LayerSpec& layer) { return layer.window > 0 || layer.chunk > 0; });
  if (!limits || spec.bidirectional) return "";
  const std::vector<Reach> reaches = KvReaches(spec);
  const bool drops = std::any_of(reaches.begin(), reaches.end(),
                                 [](const Reach& reach) { return reach.limited(); });
  return drops ? "layers keep no more tokens than they see" : "all layers keep all tokens";
}

std::string ChunkText(const DecoderSpec& spec) {
  size_t chunked = 0;
  int chunk = 0;
  for (const LayerSpec& layer : spec.layer_specs)
    if (layer.chunk > 0) ++chunked, chunk = layer.chunk;
  return chunked == 0 ? ""
                      : StrCat("of ", chunk, " tokens, which ", chunked, " of ", spec.layers,
                               " layers attend within");
}

std::string NormText(const DecoderSpec& spec) {
  std::string places = NormPlaces(spec.names);
  std::replace(places.begin(), places.end(), '_', ' ');
  std::string text =
      StrCat(Name(spec.norm), " norm ", places, " each part, epsilon ", spec.norm_eps);
  if (spec.post_norms_of_sums) text += ", of the sum with the residual";
  if (!spec.names.embedding_norm.empty()) text += ", of the embeddings";
  if (spec.norm_offset != 0) text += StrCat(", weights stored less ", spec.norm_offset);
  if (spec.qk_norm == QkNorm::kPerHead) text += ", of each query and key head";
  if (spec.qk_norm == QkNorm::kWhole) text += ", of all queries and all keys";
  if (spec.qk_norm_after_rope) text += " after it is rotated";
  const auto normed = std::count_if(spec.layer_specs.begin(), spec.layer_specs.end(),
                                    [](const LayerSpec& layer) { return layer.qk_norm; });
  if (spec.qk_norm != QkNorm::kNone && normed < spec.layers)
    text += StrCat(" in ", normed, " of ", spec.layers, " layers");
  if (spec.value_norm) text += ", of each value head without weights";
  return text;
}

// What Gemma's small models have beside the usual parts.
void AddStreamFacts(const DecoderSpec& spec,
                    std::vector<std::pair<std::string, std::string>>& facts) {
  if (const LayerInputSpec& inputs = spec.layer_inputs; inputs.size > 0)
    facts.emplace_back("layer inputs",
                       StrCat(inputs.size, " elements for each token and layer, from a table of ",
                              inputs.vocabulary, " rows that stays in the file"));
  std::vector<std::string> parts;
  if (spec.alt_up.streams > 0)
    parts.push_back(StrCat(spec.alt_up.streams, " residual streams (AltUp)"));
  if (spec.laurel_rank > 0)
    parts.push_back(StrCat("a term of rank ", spec.laurel_rank, " beside attention (LAuReL)"));
  if (!parts.empty()) facts.emplace_back("residual", Join(parts, ", "));
}

// What is not the same in all layers, or unusual about them.
std::string LayersText(const DecoderSpec& spec) {
  std::vector<std::string> parts;
  size_t unrotated = 0, scaled = 0, mixers_alone = 0, mlps_alone = 0, sharing = 0, cut = 0;
  std::map<int, size_t> widths;  // of MLPs that are not the decoder's
  for (const LayerSpec& layer : spec.layer_specs) {
    unrotated += layer.rope < 0 ? 1 : 0;
    scaled += layer.scales_queries ? 1 : 0;
    mixers_alone += layer.mlp == MlpKind::kNone ? 1 : 0;
    mlps_alone += layer.mixer == MixerKind::kNone ? 1 : 0;
    sharing += layer.kv_from >= 0 ? 1 : 0;
    cut += layer.gate_cut ? 1 : 0;
    if (layer.intermediate > 0) ++widths[layer.intermediate];
  }
  if (!spec.names.layer_scale.empty()) parts.emplace_back("each times a number of its own");
  if (spec.parts_side_by_side) parts.emplace_back("attention and MLP side by side");
  if (mixers_alone > 0) parts.push_back(StrCat(mixers_alone, " of ", spec.layers, " without MLP"));
  if (mlps_alone > 0)
    parts.push_back(StrCat(mlps_alone, " of ", spec.layers, " an MLP or experts alone"));
  if (sharing > 0)
    parts.push_back(StrCat(sharing, " of ", spec.layers, " see keys and values of an earlier one"));
  for (const auto& [width, count] : widths) parts.push_back(StrCat("MLP ", width, " in ", count));
  if (cut > 0) parts.push_back(StrCat("the largest gates alone in ", cut));
  if (unrotated > 0 && !spec.ropes.empty())
    parts.push_back(StrCat(unrotated, " of ", spec.layers, " without rope"));
  if (scaled > 0)
    parts.push_back(StrCat("queries of ", scaled, " scaled by position beyond ",
                           spec.query_scale.length, " tokens"));
  return Join(parts, ", ");
}

// Heads that some layers have instead of the decoder's.
std::string OtherHeadsText(const DecoderSpec& spec) {
  std::string text;
  std::vector<std::pair<HeadShape, bool>> told;
  for (size_t i = 0; i < spec.layer_specs.size(); ++i) {
    const LayerSpec& layer = spec.layer_specs[i];
    if (layer.head_dim == 0 && layer.kv_heads == 0 && !layer.keys_as_values) continue;
    const std::pair kind(LayerHeads(spec, i), layer.keys_as_values);
    if (std::find(told.begin(), told.end(), kind) != told.end()) continue;
    told.push_back(kind);
    int layers = 0;
    for (size_t j = 0; j < spec.layer_specs.size(); ++j)
      layers += std::pair(LayerHeads(spec, j), spec.layer_specs[j].keys_as_values) == kind;
    text +=
        StrCat("; in ", layers, " of ", spec.layers, " layers heads of ", kind.first.head_dim, ", ",
               kind.first.kv_heads, " key-value heads", kind.second ? ", keys as values" : "");
  }
  return text;
}

// How attention knows positions, if not by rope alone.
const char* PositionText(const DecoderSpec& spec) {
  if (!spec.ropes.empty()) return "";
  return spec.names.position_embedding.empty() ? ", no positions" : ", learned positions";
}

std::string MambaText(const DecoderSpec& spec) {
  const MambaSpec& mamba = spec.mamba;
  const bool beside = std::any_of(
      spec.layer_specs.begin(), spec.layer_specs.end(),
      [](const LayerSpec& layer) { return layer.mixer == MixerKind::kAttentionAndMamba; });
  return StrCat("Mamba-2 ", beside ? "beside" : "instead of", " attention in ",
                RecurrentLayers(spec), " of ", spec.layers, " layers: ", mamba.heads,
                " heads with a state of ", mamba.state_dim, " x ", mamba.head_dim, ", ",
                mamba.groups, mamba.groups == 1 ? " group" : " groups", " of B and C, ",
                mamba.norm_runs > 0 ? "normalised" : "not normalised", ", convolution over ",
                mamba.conv_width, " tokens");
}

std::string ClassifierText(const ClassifierSpec& classifier) {
  if (classifier.labels == 0) return "";
  return StrCat(classifier.labels, classifier.labels == 1 ? " score" : " scores", " of ",
                classifier.of_mean ? "the mean of all tokens" : "the first token");
}

std::string RecurrentText(const DecoderSpec& spec) {
  const size_t layers = RecurrentLayers(spec);
  if (layers == 0) return "";
  if (spec.mamba.heads > 0) return MambaText(spec);
  if (spec.conv.width > 0)
    return StrCat("gated convolution over ", spec.conv.width, " tokens instead of attention in ",
                  layers, " of ", spec.layers, " layers");
  const DeltaSpec& delta = spec.delta;
  return StrCat(delta.decay_per_channel ? "Kimi Delta Attention" : "Gated DeltaNet",
                " instead of attention in ", layers, " of ", spec.layers,
                " layers: ", delta.value_heads, " heads with a state of ", delta.key_dim, " x ",
                delta.value_dim, ", ", delta.key_heads, " of keys, convolution over ",
                delta.conv_width, " tokens");
}

}  // namespace

std::vector<std::pair<std::string, std::string>> SpecFacts(const DecoderSpec& spec) {
  std::vector<std::pair<std::string, std::string>> facts;
  const auto biases = Biases(spec);
  facts.emplace_back(
      spec.bidirectional ? "encoder" : "decoder",
      StrCat(spec.layers, " layers, hidden ", spec.hidden, ", MLP ", spec.intermediate, " (",
             MlpName(spec), "), biases: ", biases.empty() ? "none" : Join(biases, ", ")));
  facts.emplace_back("norms", NormText(spec));
  facts.emplace_back("attention",
                     StrCat(spec.heads, " heads of ", spec.head_dim, ", ", spec.kv_heads,
                            " key-value heads, products times ", spec.attention_scale,
                            PositionText(spec), spec.bidirectional ? ", in both directions" : "",
                            spec.attention_gate ? ", each times the sigmoid of a gate" : "",
                            OtherHeadsText(spec)));
  if (const std::string text = RecurrentText(spec); !text.empty())
    facts.emplace_back("recurrent", text);
  for (const RopeSpec& rope : spec.ropes) facts.emplace_back("rope", RopeText(rope));
  if (const std::string text = WindowText(spec); !text.empty()) facts.emplace_back("window", text);
  if (const std::string text = ClassifierText(spec.classifier); !text.empty())
    facts.emplace_back("classifier", text);
  if (const std::string text = ChunkText(spec); !text.empty()) facts.emplace_back("chunks", text);
  if (const std::string text = CacheText(spec); !text.empty()) facts.emplace_back("cache", text);
  if (const std::string text = LayersText(spec); !text.empty()) facts.emplace_back("layers", text);
  AddStreamFacts(spec, facts);
  if (const std::string text = MultiplierText(spec); !text.empty())
    facts.emplace_back("scaling", text);
  return facts;
}

}  // namespace pinion
