#include "engine/weights/quant_facts.h"

#include <algorithm>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

// An eight-bit float's scales lie in blocks, of which a tensor knows the columns alone.
std::string ScalesText(const QuantisedTensor& tensor, const std::optional<QuantScheme>& scheme) {
  const bool whole_rows = tensor.group() >= tensor.columns();
  if (scheme && scheme->method == QuantMethod::kFp8) {
    if (scheme->block_rows == 0) return "matrix";
    if (scheme->block_rows > 1)
      return StrCat("block of ", scheme->block_rows, " x ", scheme->block_columns);
  }
  if (!whole_rows) return StrCat(tensor.group(), " inputs of an output");
  // A row may happen to be as long as a group.
  if (scheme && scheme->group > 0) return StrCat(scheme->group, " inputs of an output");
  return "output";
}

// The activations that `quantization_config` asks for; empty if it names none.
std::string AskedText(const Json& config) {
  const Json* quantisation = config.Find("quantization_config");
  if (!quantisation || !quantisation->is_object()) return "";
  if (const Json* scheme = quantisation->Find("activation_scheme"); scheme && scheme->is_string())
    return StrCat("8-bit floats, ", scheme->string());
  const Json* groups = quantisation->Find("config_groups");
  if (!groups || !groups->is_object() || groups->object().empty()) return "";
  const Json* asked = groups->object()[0].second.Find("input_activations");
  if (!asked || !asked->is_object()) return "";
  const auto says = [&](const char* key, const char* if_absent) {
    const Json* value = asked->Find(key);
    return value && value->is_string() ? value->string() : std::string(if_absent);
  };
  const Json* bits = asked->Find("num_bits");
  const Json* group = asked->Find("group_size");
  const Json* dynamic = asked->Find("dynamic");  // true, false (also if it is missing) or "local"
  const bool is_dynamic =
      dynamic && (dynamic->is_string() || (dynamic->is_bool() && dynamic->boolean()));
  return StrCat(
      bits && bits->is_int() ? StrCat(bits->integer(), "-bit ") : "",
      says("type", "int") == "float" ? "floats" : "integers", is_dynamic ? ", dynamic" : ", static",
      " for each ",
      group && group->is_int() ? StrCat(group->integer(), " inputs") : says("strategy", "tensor"));
}

// GPTQ's files hold zero points even if all of them are the middle of the range.
bool SaysSymmetric(const Json& config) {
  const Json* quantisation = config.Find("quantization_config");
  const Json* symmetric = quantisation ? quantisation->Find("sym") : nullptr;
  return symmetric && symmetric->is_bool() && symmetric->boolean();
}

// Whether a static rounding moves zero.
bool HasZeroPoints(const FormatPlan& formats) {
  return std::any_of(formats.formats().begin(), formats.formats().end(),
                     [](const auto& each) { return each.second.rounding.zero_point != 0; });
}

std::string RoundedToE4m3Text(const QuantScheme& scheme) {
  if (scheme.activations == ActivationRounding::kStatic)
    return "rounded to 8-bit floats (e4m3) with the checkpoint's scale for each matrix (static)";
  const std::string inputs =
      scheme.activation_group > 0 ? StrCat(scheme.activation_group, " inputs of a token") : "token";
  return StrCat("rounded to 8-bit floats (e4m3) with a scale for each ", inputs,
                scheme.activation_powers ? ", a power of two" : "",
                ", as the checkpoint asks (dynamic); --activations float leaves them unrounded");
}

}  // namespace

std::vector<QuantisedKind> QuantisedKinds(const ModelFiles& files, const TensorSource& weights) {
  std::vector<QuantisedKind> kinds;
  for (const TensorSpec& tensor : TensorList(files.spec)) {
    const QuantisedTensor* quantised = weights.Quantised(tensor.name);
    if (!quantised) continue;
    const QuantisedKind kind{
        quantised->format(), ScalesText(*quantised, files.scheme),
        !quantised->range().has_offsets || SaysSymmetric(files.config),
        quantised->range().scale_type != kernels::ScaleType::kF16 || quantised->range().e4m3,
        !quantised->group_of().empty()};
    auto found = std::find_if(kinds.begin(), kinds.end(), [&](const QuantisedKind& each) {
      return each.format == kind.format && each.scales == kind.scales &&
             each.symmetric == kind.symmetric && each.act_order == kind.act_order;
    });
    if (found == kinds.end()) found = kinds.insert(found, kind);
    ++found->matrices;
  }
  return kinds;
}

std::string ActivationsText(const ModelFiles& files, const FormatPlan& formats) {
  if (formats.empty()) return "";
  if (formats.CountRoundedToE4m3() > 0) return RoundedToE4m3Text(*files.scheme);
  const bool to_int8 = files.scheme && files.scheme->method != QuantMethod::kFp8;
  const ActivationRounding rounding =
      to_int8 ? files.scheme->activations : ActivationRounding::kNone;
  if (rounding == ActivationRounding::kPerToken)
    return "rounded to int8 with a scale for each token, as the checkpoint asks (dynamic)";
  if (rounding == ActivationRounding::kStatic)
    return StrCat("rounded to int8 with the checkpoint's scale",
                  HasZeroPoints(formats) ? " and zero point" : "", " for each matrix (static)");
  const bool rounds = formats.Count(IntegerProduct::kInt8) > 0;
  const std::string asked = AskedText(files.config);
  return StrCat(rounds
                    ? "rounded to int8 with a scale for each token, outliers kept apart as floats; "
                      "--activations float leaves them unrounded"
                    : "not rounded",
                asked.empty() ? "" : StrCat("; the checkpoint asks for ", asked));
}

std::string QuantisedText(const QuantisedKind& kind) {
  return StrCat(Counted(kind.matrices, "tensor"), " in ", kind.format, ", a scale ",
                kind.symmetric ? "" : "and an offset ", "for each ", kind.scales,
                kind.symmetric && !kind.floats ? ", symmetric" : "",
                kind.act_order ? ", act-order: a group's inputs are not consecutive" : "");
}

Json QuantisedJson(const std::vector<QuantisedKind>& kinds) {
  Json list = Json::MakeArray();
  for (const QuantisedKind& kind : kinds)
    list.Append(Json::Object{{"format", kind.format},
                             {"scale_of", kind.scales},
                             {"symmetric", kind.symmetric},
                             {"act_order", kind.act_order},
                             {"tensors", static_cast<uint64_t>(kind.matrices)}});
  return list;
}

}  // namespace pinion
