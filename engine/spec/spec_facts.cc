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

std::string NormText(const DecoderSpec& spec) {
  std::string places = NormPlaces(spec.names);
  std::replace(places.begin(), places.end(), '_', ' ');
  std::string text = StrCat(spec.norm == NormKind::kRms ? "RMS norm " : "LayerNorm ", places,
                            " each part, epsilon ", spec.norm_eps);
  if (spec.post_norms_of_sums) text += ", of the sum with the residual";
  if (!spec.names.embedding_norm.empty()) text += ", of the embeddings";
  if (spec.norm_offset != 0) text += StrCat(", times ", spec.norm_offset, " + the stored weight");
  if (spec.qk_norm == QkNorm::kPerHead) text += ", of each query and key head";
  if (spec.qk_norm == QkNorm::kWhole) text += ", of all queries and all keys";
  if (spec.qk_norm_after_rope) text += " after it is rotated";
  const auto normed = std::count_if(spec.layer_specs.begin(), spec.layer_specs.end(),
                                    [](const LayerSpec& layer) { return layer.qk_norm; });
  if (spec.qk_norm != QkNorm::kNone && normed < spec.layers)
    text += StrCat(" ", InLayers(spec, static_cast<size_t>(normed)));
  if (spec.value_norm) text += ", of each value head without weights";
  return text;
}

// The parts that Gemma's small models have beside the usual ones.
void AddStreamFacts(const DecoderSpec& spec, Facts& facts) {
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

// How layers are made of their parts, if not of attention or its like and then an MLP or experts.
std::string LayersText(const DecoderSpec& spec) {
  std::vector<std::string> parts;
  size_t mixers_alone = 0, mlps_alone = 0;
  for (const LayerSpec& layer : spec.layer_specs) {
    mixers_alone += layer.mlp == MlpKind::kNone ? 1 : 0;
    mlps_alone += layer.mixer == MixerKind::kNone ? 1 : 0;
  }
  if (!spec.names.layer_scale.empty())
    parts.emplace_back("results of each times a number of its own");
  if (spec.parts_side_by_side) parts.emplace_back("attention and MLP side by side");
  if (mixers_alone > 0) parts.push_back(StrCat("no MLP ", InLayers(spec, mixers_alone)));
  if (mlps_alone > 0)
    parts.push_back(StrCat("an MLP or experts alone ", InLayers(spec, mlps_alone)));
  return Join(parts, ", ");
}

std::string ClassifierText(const ClassifierSpec& classifier) {
  if (classifier.labels == 0) return "";
  return StrCat(Counted(static_cast<size_t>(classifier.labels), "score"), " of ",
                classifier.of_mean ? "the mean of all tokens" : "the first token");
}

}  // namespace

Facts SpecFacts(const DecoderSpec& spec) {
  Facts facts;
  const auto biases = Biases(spec);
  facts.emplace_back(
      spec.bidirectional ? "encoder" : "decoder",
      StrCat(Counted(static_cast<size_t>(spec.layers), "layer"), ", hidden ", spec.hidden,
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
