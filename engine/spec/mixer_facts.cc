// The lines of `pinion model info` about attention and other mixers.

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "engine/spec/attention_spec.h"
#include "engine/spec/cache_kinds.h"
#include "engine/spec/fact_groups.h"
#include "engine/spec/spec_names.h"

namespace pinion {
namespace {

template <typename Is>
size_t CountLayers(const DecoderSpec& spec, const Is& is) {
  return static_cast<size_t>(std::count_if(spec.layer_specs.begin(), spec.layer_specs.end(), is));
}

bool HasWindow(const DecoderSpec& spec, const LayerSpec& layer) {
  return layer.window > 0 && layer.window < spec.max_positions;
}

// 0.125 -> "divided by sqrt(64)".
std::string ScoresText(float scale) {
  if (scale == 1) return "scores not scaled";
  const double square = 1 / (static_cast<double>(scale) * scale);
  if (std::fabs(square - std::round(square)) > 1e-6 * square) return StrCat("scores times ", scale);
  return StrCat("scores divided by sqrt(", std::llround(square), ")");
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
    size_t layers = 0;
    for (size_t j = 0; j < spec.layer_specs.size(); ++j)
      layers += std::pair(LayerHeads(spec, j), spec.layer_specs[j].keys_as_values) == kind;
    text += StrCat("; ", InLayers(spec, layers), " heads of ", kind.first.head_dim, ", ",
                   Counted(static_cast<size_t>(kind.first.kv_heads), "key-value head"),
                   kind.second ? ", keys as values" : "");
  }
  return text;
}

// How attention knows positions, if not by rope alone.
const char* PositionText(const DecoderSpec& spec) {
  if (!spec.ropes.empty()) return "";
  return spec.names.position_embedding.empty() ? ", no positions" : ", learned positions";
}

std::string HeadsText(const DecoderSpec& spec) {
  const auto heads = static_cast<size_t>(spec.heads), kv = static_cast<size_t>(spec.kv_heads);
  const std::string count = Counted(heads, "head");
  if (const LatentSpec& latent = spec.latent; latent.kv_rank > 0)
    return StrCat(count, " of ", latent.nope_dim, " + ", latent.rope_dim,
                  spec.ropes.empty() ? "" : " rotary", ", values of ", latent.value_dim);
  return StrCat(count, " of ", spec.head_dim, ", ", Counted(kv, "key-value head"));
}

std::string AttentionText(const DecoderSpec& spec) {
  const size_t unrotated =
      CountLayers(spec, [](const auto& layer) { return Attends(layer.mixer) && layer.rope < 0; });
  const size_t scaled = CountLayers(spec, [](const auto& layer) { return layer.scales_queries; });
  const size_t sharing = CountLayers(spec, [](const auto& layer) { return layer.kv_from >= 0; });
  std::string text =
      StrCat(HeadsText(spec), ", ", ScoresText(spec.attention_scale), PositionText(spec),
             spec.bidirectional ? ", in both directions" : "",
             spec.attention_gate ? ", output times the sigmoid of a gate" : "",
             spec.names.sinks.empty() ? "" : ", a learned sink per head", OtherHeadsText(spec));
  if (unrotated > 0 && !spec.ropes.empty())
    text += StrCat("; ", InLayers(spec, unrotated), " without rope");
  if (scaled > 0)
    text += StrCat("; ", InLayers(spec, scaled), " queries scaled by position beyond ",
                   Plain(spec.query_scale.length), " tokens");
  if (sharing > 0)
    text += StrCat("; ", InLayers(spec, sharing), " keys and values of an earlier layer");
  return text;
}

std::string LatentText(const LatentSpec& latent, bool rotates) {
  return StrCat(
      latent.kv_rank, " elements per token, from which keys and values are made, and a ",
      rotates ? "rotary " : "", "key of ", latent.rope_dim,
      latent.q_rank > 0
          ? StrCat("; queries from ", Grouped(static_cast<uint64_t>(latent.q_rank)), " elements")
          : "");
}

std::string IndexText(const IndexSpec& index) {
  return StrCat("a token attends to the ", Counted(static_cast<size_t>(index.top_k), "token"),
                " up to itself that score highest; scores by ",
                Counted(static_cast<size_t>(index.heads), "head"), " of ", index.dim,
                " with one cached key per token");
}

std::string MambaText(const DecoderSpec& spec) {
  const MambaSpec& mamba = spec.mamba;
  const size_t beside = CountLayers(
      spec, [](const auto& layer) { return layer.mixer == MixerKind::kAttentionAndMamba; });
  std::string text = StrCat(
      "Mamba-2 ", beside > 0 ? "beside" : "instead of", " attention ",
      InLayers(spec, RecurrentLayers(spec)), ": ",
      Counted(static_cast<size_t>(mamba.heads), "head"), " with a state of ", mamba.state_dim,
      " x ", mamba.head_dim, ", ", Counted(static_cast<size_t>(mamba.groups), "group"),
      " of B and C, ", mamba.norm_runs > 0 ? "output normalised" : "output not normalised",
      ", convolution over ", Counted(static_cast<size_t>(mamba.conv_width), "token"));
  const MambaMultipliers& times = mamba.multipliers;
  for (const auto& [name, value] : {std::pair{"z", times.z},
                                    {"x", times.x},
                                    {"B", times.b},
                                    {"C", times.c},
                                    {"dt", times.dt},
                                    {"output", times.out}})
    if (value != 1) text += StrCat(", ", name, " times ", value);
  return text;
}

std::string DeltaText(const DecoderSpec& spec) {
  const DeltaSpec& delta = spec.delta;
  return StrCat(delta.decay_per_channel ? "Kimi Delta Attention" : "Gated DeltaNet",
                " instead of attention ", InLayers(spec, RecurrentLayers(spec)), ": ",
                Counted(static_cast<size_t>(delta.value_heads), "head"), " with a state of ",
                delta.key_dim, " x ", delta.value_dim, ", ",
                Counted(static_cast<size_t>(delta.key_heads), "key head"), ", convolution over ",
                delta.conv_width, " tokens");
}

std::string RecurrentText(const DecoderSpec& spec) {
  if (spec.mamba.heads > 0) return MambaText(spec);
  if (spec.delta.key_heads > 0) return DeltaText(spec);
  return StrCat("gated convolution over ", spec.conv.width, " tokens instead of attention ",
                InLayers(spec, RecurrentLayers(spec)));
}

std::string RopeText(const RopeSpec& rope) {
  std::string text =
      StrCat(rope.type == "default" ? "" : StrCat(rope.type, ", "), "base ", Plain(rope.theta),
             ", ", rope.dim, " elements", rope.interleaved ? " in interleaved pairs" : "");
  for (const auto& [name, words, value, neutral] : kRopeNumbers)
    if (rope.*value != neutral) text += StrCat(", ", words, " ", Plain(rope.*value));
  return text;
}

// Which layers a rope serves; empty if the model has no other.
std::string RopeLayersText(const DecoderSpec& spec, int rope) {
  if (spec.ropes.size() == 1) return "";
  const auto serves = [&](const LayerSpec& layer) {
    return Attends(layer.mixer) && layer.rope == rope;
  };
  const size_t count = CountLayers(spec, serves);
  const size_t windowed = CountLayers(
      spec, [&](const LayerSpec& layer) { return serves(layer) && HasWindow(spec, layer); });
  const char* which = windowed == count ? ", those with a window"
                      : windowed == 0   ? ", those without a window"
                                        : "";
  return StrCat(", ", InLayers(spec, count), which);
}

std::string WindowText(const DecoderSpec& spec) {
  std::vector<std::string> parts;
  std::set<int> sizes;
  for (const LayerSpec& layer : spec.layer_specs)
    if (HasWindow(spec, layer)) sizes.insert(layer.window);
  for (const int size : sizes) {
    const size_t layers =
        CountLayers(spec, [&](const LayerSpec& layer) { return layer.window == size; });
    const auto seen = static_cast<size_t>(spec.bidirectional ? size - 1 : size);
    parts.push_back(StrCat(Counted(seen, "token"), spec.bidirectional ? " each way " : " ",
                           InLayers(spec, layers)));
  }
  return Join(parts, ", ");
}

std::string ChunkText(const DecoderSpec& spec) {
  const auto chunked = [](const LayerSpec& layer) { return layer.chunk > 0; };
  const auto first = std::find_if(spec.layer_specs.begin(), spec.layer_specs.end(), chunked);
  if (first == spec.layer_specs.end()) return "";
  return StrCat(Counted(static_cast<size_t>(first->chunk), "token"),
                ", within which layers attend ", InLayers(spec, CountLayers(spec, chunked)));
}

// How much of a sequence stays, layer by layer; empty if every layer keeps all of it.
std::string CacheText(const DecoderSpec& spec) {
  if (spec.bidirectional) return "";
  const auto kinds = CacheKinds(spec, kernels::KvDtype::kBf16, 1);
  std::vector<std::string> parts;
  bool keeps_all = true;
  for (const CacheKind& kind : kinds) {
    const bool recurs = kind.name == "recurrent";
    keeps_all = keeps_all && !recurs && kind.most_tokens == 0;
    const std::string kept = recurs ? "a state"
                             : kind.most_tokens == 0
                                 ? "all tokens"
                                 : StrCat("the last ", Counted(kind.most_tokens, "token"));
    parts.push_back(StrCat(kept, " ", InLayers(spec, kind.layers)));
  }
  const bool limited = CountLayers(spec, [&](const LayerSpec& layer) {
                         return HasWindow(spec, layer) || layer.chunk > 0;
                       }) > 0;
  if (keeps_all && !limited) return "";
  const size_t sharing = CountLayers(spec, [](const auto& layer) { return layer.kv_from >= 0; });
  if (sharing > 0) parts.push_back(StrCat("nothing ", InLayers(spec, sharing)));
  return Join(parts, ", ");
}

}  // namespace

void AddMixerFacts(const DecoderSpec& spec, Facts& facts) {
  const auto add = [&](const char* heading, const std::string& text) {
    if (!text.empty()) facts.emplace_back(heading, text);
  };
  add("attention", AttentionText(spec));
  if (spec.latent.kv_rank > 0) add("latent", LatentText(spec.latent, !spec.ropes.empty()));
  if (spec.index.top_k > 0) add("indexer", IndexText(spec.index));
  if (RecurrentLayers(spec) > 0) add("recurrent", RecurrentText(spec));
  for (size_t i = 0; i < spec.ropes.size(); ++i)
    add("rope", RopeText(spec.ropes[i]) + RopeLayersText(spec, static_cast<int>(i)));
  add("window", WindowText(spec));
  add("chunks", ChunkText(spec));
  add("cache", CacheText(spec));
}

}  // namespace pinion
