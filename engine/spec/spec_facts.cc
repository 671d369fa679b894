#include "engine/spec/spec_facts.h"

#include <algorithm>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "engine/spec/fact_groups.h"
#include "engine/spec/spec_names.h"

namespace pinion {
namespace {

std::string MultiplierText(const DecoderSpec& spec) {
  std::vector<std::string> parts;
  for (const auto& [name, words, value, neutral] : kSpecMultipliers)
    if (spec.*value != neutral) parts.push_back(StrCat(words, " ", spec.*value));
  return Join(parts, ", ");
}

// The places of other norms than those before and after attention and MLPs.
std::vector<std::string> OtherNorms(const DecoderSpec& spec) {
  std::vector<std::string> places;
  if (!spec.names.embedding_norm.empty()) places.emplace_back("the embeddings");
  if (spec.qk_norm != QkNorm::kNone) {
    std::string text =
        spec.qk_norm == QkNorm::kPerHead ? "each query and key head" : "all queries and all keys";
    if (spec.qk_norm_after_rope) text += " after rope";
    const auto normed = std::count_if(spec.layer_specs.begin(), spec.layer_specs.end(),
                                      [](const LayerSpec& layer) { return layer.qk_norm; });
    if (normed < spec.layers) text += StrCat(" ", InLayers(spec, static_cast<size_t>(normed)));
    places.push_back(std::move(text));
  }
  if (spec.value_norm) places.emplace_back("each value head (without weights)");
  return places;
}

std::string NormText(const DecoderSpec& spec) {
  std::string places = NormPlaces(spec.names);
  std::replace(places.begin(), places.end(), '_', ' ');
  std::string text =
      StrCat(spec.norm == NormKind::kRms ? "RMSNorm " : "LayerNorm ", places, " each sublayer");
  if (spec.post_norms_of_sums) text += ", on the sum with the residual";
  text += StrCat(", epsilon ", spec.norm_eps);
  if (spec.norm_offset != 0) text += StrCat(", times ", spec.norm_offset, " + the stored weight");
  const std::vector<std::string> others = OtherNorms(spec);
  return others.empty() ? text : StrCat(text, "; also on ", Join(others, ", "));
}

// The parts that Gemma's small models have beside the usual ones.
void AddStreamFacts(const DecoderSpec& spec, Facts& facts) {
  if (const LayerInputSpec& inputs = spec.layer_inputs; inputs.size > 0)
    facts.emplace_back(
        "layer inputs",
        StrCat(inputs.size, " elements per token and layer, from a table of ",
               Grouped(static_cast<uint64_t>(inputs.vocabulary)), " rows that stays in the file"));
  std::vector<std::string> parts;
  if (spec.alt_up.streams > 0)
    parts.push_back(StrCat(spec.alt_up.streams, " residual streams (AltUp)"));
  if (spec.laurel_rank > 0)
    parts.push_back(StrCat("a term of rank ", spec.laurel_rank, " beside attention (LAuReL)"));
  if (!parts.empty()) facts.emplace_back("residual", Join(parts, ", "));
}

// How layers are made of their parts, if not of attention or its like and then an MLP or experts.
std::string LayersText(const DecoderSpec& spec) {
  std::vector<std::string> parts;
  size_t mixers_alone = 0, mlps_alone = 0;
  for (const LayerSpec& layer : spec.layer_specs) {
    mixers_alone += layer.mlp == MlpKind::kNone ? 1 : 0;
    mlps_alone += layer.mixer == MixerKind::kNone ? 1 : 0;
  }
  if (!spec.names.layer_scale.empty())
    parts.emplace_back("each layer's output times a learned scalar");
  if (spec.parts_side_by_side) parts.emplace_back("attention and MLP in parallel");
  if (mixers_alone > 0) parts.push_back(StrCat("no MLP ", InLayers(spec, mixers_alone)));
  if (mlps_alone > 0)
    parts.push_back(StrCat("an MLP or experts alone ", InLayers(spec, mlps_alone)));
  return Join(parts, ", ");
}

// A classifier of one label scores a pair of texts: it is a reranker.
std::string ClassifierText(const ClassifierSpec& classifier) {
  if (classifier.labels == 0) return "";
  const std::string from =
      classifier.of_mean ? "the mean of all tokens' states" : "the first token's state";
  if (classifier.labels == 1)
    return StrCat("scores how well a document answers a query, read together; from ", from);
  return StrCat(Counted(static_cast<size_t>(classifier.labels), "label"),
                " of a text or of a pair, from ", from);
}

}  // namespace

Facts SpecFacts(const DecoderSpec& spec) {
  Facts facts;
  const auto biases = Biases(spec);
  facts.emplace_back(spec.bidirectional ? "encoder" : "decoder",
                     StrCat(Counted(static_cast<size_t>(spec.layers), "layer"), ", hidden ",
                            Grouped(static_cast<uint64_t>(spec.hidden)),
                            ", biases: ", biases.empty() ? "none" : Join(biases, ", ")));
  facts.emplace_back("norms", NormText(spec));
  AddMixerFacts(spec, facts);
  AddMlpFacts(spec, facts);
  if (const std::string text = LayersText(spec); !text.empty()) facts.emplace_back("layers", text);
  AddStreamFacts(spec, facts);
  if (const std::string text = MultiplierText(spec); !text.empty())
    facts.emplace_back("scaling", text);
  if (const std::string text = ClassifierText(spec.classifier); !text.empty())
    facts.emplace_back("classifier", text);
  return facts;
}

}  // namespace pinion
