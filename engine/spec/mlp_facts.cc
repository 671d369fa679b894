// The lines of `pinion model info` about dense MLPs and experts.

#include <map>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "engine/spec/attention_spec.h"
#include "engine/spec/fact_groups.h"
#include "engine/spec/spec_names.h"

namespace pinion {
namespace {

const char* ScoreText(RouterScore score) {
  switch (score) {
    case RouterScore::kSoftmax:
      return "weights by softmax of all";
    case RouterScore::kSigmoid:
      return "weights by sigmoid";
    case RouterScore::kLogit:
      return "weights by softmax of the chosen";
  }
  return "";
}

// Empty if no layer has a dense MLP.
std::string DenseText(const DecoderSpec& spec) {
  std::map<size_t, size_t> widths;  // and the layers that have it
  size_t cut = 0;
  for (size_t i = 0; i < spec.layer_specs.size(); ++i) {
    if (spec.layer_specs[i].mlp != MlpKind::kDense) continue;
    ++widths[MlpWidth(spec, i)];
    cut += spec.layer_specs[i].gate_cut ? 1 : 0;
  }
  if (widths.empty()) return "";
  std::vector<std::string> parts;
  for (const auto& [width, count] : widths)
    parts.push_back(StrCat("width ", Grouped(uint64_t{width}), " ", InLayers(spec, count)));
  parts.push_back(MlpWords(spec));
  if (cut > 0) parts.push_back(StrCat("only the largest gates kept ", InLayers(spec, cut)));
  return Join(parts, ", ");
}

std::string RouterText(const DecoderSpec& spec) {
  const RouterSpec& router = spec.moe.router;
  std::string text = ScoreText(router.score);
  if (router.normalise) text += ", normalised";
  if (router.scale != 1) text += StrCat(", times ", router.scale);
  if (!spec.names.router_expert_scale.empty()) text += ", times a scale per expert";
  if (router.correction) text += ", a bias corrects the choice but not the weights";
  if (router.groups > 1)
    text += StrCat(", chosen from ", router.top_groups, " of ",
                   Counted(static_cast<size_t>(router.groups), "group"));
  if (spec.moe.weighs_input) text += ", which multiply the input";
  if (!spec.names.router_norm.empty()) text += "; a learned scale on the router's input";
  return text;
}

std::string ExpertsText(const DecoderSpec& spec) {
  const MoeSpec& moe = spec.moe;
  size_t layers = 0;
  for (const LayerSpec& layer : spec.layer_specs) layers += layer.mlp == MlpKind::kExperts ? 1 : 0;
  const std::string activation =
      moe.swiglu_limit > 0
          ? StrCat("SwiGLU with limit ", moe.swiglu_limit, " and alpha ", moe.swiglu_alpha)
          : MlpWords(spec);
  std::string text =
      StrCat(Counted(static_cast<size_t>(moe.router.experts), "expert"), " of width ",
             Grouped(static_cast<uint64_t>(moe.intermediate)), " ", InLayers(spec, layers), ", ",
             moe.router.top_k, " per token, ", activation, "; ", RouterText(spec));
  if (moe.shared_intermediate > 0)
    text += StrCat("; beside them a shared MLP of width ",
                   Grouped(static_cast<uint64_t>(moe.shared_intermediate)), " for every token",
                   moe.shared_router ? ", times the sigmoid of a gate" : "",
                   moe.apart ? ", with norms of its own" : "");
  return text;
}

}  // namespace

void AddMlpFacts(const DecoderSpec& spec, Facts& facts) {
  if (const std::string text = DenseText(spec); !text.empty()) facts.emplace_back("MLP", text);
  if (spec.moe.router.experts > 0) facts.emplace_back("experts", ExpertsText(spec));
}

}  // namespace pinion
