#include "engine/checkpoint/scheme.h"

#include <algorithm>

#include "engine/base/printable.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/format_table.h"

namespace pinion {
namespace {

tl::unexpected<Error> Unsupported(std::string_view key, std::string_view value,
                                  std::string_view want) {
  return Fail(ErrorCode::kUnsupported, StrCat("'", key, "' of the quantisation is '",
                                              Printable(value.substr(0, 60)), "', want ", want));
}

Status CheckBits(int64_t bits) {
  if (bits == 4 || bits == 8) return {};
  return Unsupported("bits", StrCat(bits), "4 or 8");
}

Status CheckGroup(int64_t group) {
  if (group == -1 || (group >= 1 && group <= 1 << 20)) return {};
  return Unsupported("group_size", StrCat(group), "-1 (whole rows) or a positive number");
}

// [rows, columns] that share a scale; absent or null: all do.
Status ReadBlock(const Json& config, const char* key, QuantScheme& scheme) {
  const Json* block = config.Find(key);
  if (!block || block->is_null()) return {};
  const auto is_size = [](const Json& size) {
    return size.is_int() && size.integer() >= 1 && size.integer() <= 1 << 20;
  };
  if (!block->is_array() || block->array().size() != 2 || !is_size(block->array()[0]) ||
      !is_size(block->array()[1]))
    return Unsupported(key, block->Dump().substr(0, 60), "two numbers from 1 to 1048576");
  scheme.block_rows = block->array()[0].integer();
  scheme.block_columns = block->array()[1].integer();
  return {};
}

Result<QuantScheme> ReadAwq(const Json& config) {
  QuantScheme scheme;
  scheme.method = QuantMethod::kAwq;
  PINION_ASSIGN(const std::string version, Optional<std::string>(config, "version", "gemm"));
  if (version != "gemm" && version != "GEMM") return Unsupported("version", version, "gemm");
  PINION_ASSIGN(const int64_t bits, Optional<int64_t>(config, "bits", 4));
  if (bits != 4) return Unsupported("bits", StrCat(bits), "4");
  scheme.bits = 4;
  PINION_ASSIGN(scheme.group, Optional<int64_t>(config, "group_size", 128));
  PINION_TRY(CheckGroup(scheme.group));
  return scheme;
}

Result<QuantScheme> ReadGptq(const Json& config) {
  QuantScheme scheme;
  scheme.method = QuantMethod::kGptq;
  PINION_ASSIGN(const int64_t bits, Require<int64_t>(config, "bits"));
  PINION_TRY(CheckBits(bits));
  scheme.bits = static_cast<int>(bits);
  PINION_ASSIGN(scheme.group, Optional<int64_t>(config, "group_size", -1));
  PINION_TRY(CheckGroup(scheme.group));
  PINION_ASSIGN(const std::string format,
                Optional<std::string>(config, "checkpoint_format", "gptq"));
  if (format != "gptq" && format != "gptq_v2")
    return Unsupported("checkpoint_format", format, "gptq or gptq_v2");
  scheme.gptq_v1 = format == "gptq";
  if (const Json* dynamic = config.Find("dynamic"); dynamic && !dynamic->is_null())
    return Unsupported("dynamic", "set", "one width and group for all modules");
  return scheme;
}

// As DeepSeek and Qwen publish it.
Result<QuantScheme> ReadFp8(const Json& config) {
  QuantScheme scheme;
  scheme.method = QuantMethod::kFp8;
  PINION_ASSIGN(const std::string format, Optional<std::string>(config, "fmt", "e4m3"));
  if (format != "e4m3" && format != "float8_e4m3fn")  // PyTorch's name, in MiniMax-M2's files
    return Unsupported("fmt", format, "e4m3 or float8_e4m3fn");
  PINION_TRY(ReadBlock(config, "weight_block_size", scheme));
  const Json* activations = config.Find("activation_scheme");
  if (!activations || activations->is_null()) return scheme;
  PINION_ASSIGN(const std::string how, Require<std::string>(config, "activation_scheme"));
  if (how == "dynamic") {
    scheme.activations = ActivationRounding::kPerToken;
    scheme.activation_group = scheme.block_columns;
    PINION_ASSIGN(const std::string scales, Optional<std::string>(config, "scale_fmt", ""));
    if (!scales.empty() && scales != "ue8m0") return Unsupported("scale_fmt", scales, "ue8m0");
    scheme.activation_powers = !scales.empty();
  } else if (how == "static") {
    scheme.activations = ActivationRounding::kStatic;
  } else {
    return Unsupported("activation_scheme", how, "dynamic or static");
  }
  return scheme;
}

Result<QuantScheme> ReadMxfp4(const Json&) {
  QuantScheme scheme;
  scheme.method = QuantMethod::kMxfp4;
  scheme.group = 32;
  return scheme;
}

Result<ActivationRounding> ReadActivations(const Json& group) {
  const Json* activations = group.Find("input_activations");
  if (!activations || activations->is_null()) return ActivationRounding::kNone;
  PINION_ASSIGN(const int64_t bits, Require<int64_t>(*activations, "num_bits"));
  PINION_ASSIGN(const std::string type, Optional<std::string>(*activations, "type", "int"));
  if (bits != 8 || type != "int")
    return Unsupported("input_activations", StrCat(type, bits), "int8");
  PINION_ASSIGN(const bool dynamic, Optional<bool>(*activations, "dynamic", false));
  PINION_ASSIGN(const std::string strategy,
                Optional<std::string>(*activations, "strategy", "tensor"));
  if (dynamic) {
    PINION_ASSIGN(const bool symmetric, Optional<bool>(*activations, "symmetric", true));
    if (strategy != "token" || !symmetric)
      return Unsupported("input_activations",
                         StrCat("dynamic per ", strategy, symmetric ? "" : ", asymmetric"),
                         "dynamic ones per token and symmetric");
    return ActivationRounding::kPerToken;
  }
  if (strategy != "tensor") return Unsupported("input_activations", strategy, "tensor if static");
  return ActivationRounding::kStatic;
}

// Activations that are to be rounded in another way than to e4m3 by one scale for each token, for
// each run of its inputs or for the matrix are not rounded.
Status ReadFloatActivations(const Json& group, QuantScheme& scheme) {
  const Json* activations = group.Find("input_activations");
  if (!activations || activations->is_null()) return {};
  PINION_ASSIGN(const int64_t bits, Optional<int64_t>(*activations, "num_bits", 8));
  PINION_ASSIGN(const std::string type, Optional<std::string>(*activations, "type", "int"));
  PINION_ASSIGN(const bool symmetric, Optional<bool>(*activations, "symmetric", true));
  if (bits != 8 || type != "float" || !symmetric) return {};
  PINION_ASSIGN(const bool dynamic, Optional<bool>(*activations, "dynamic", false));
  PINION_ASSIGN(const std::string strategy,
                Optional<std::string>(*activations, "strategy", "tensor"));
  if (!dynamic) {
    if (strategy == "tensor") scheme.activations = ActivationRounding::kStatic;
  } else if (strategy == "token") {
    scheme.activations = ActivationRounding::kPerToken;
  } else if (strategy == "group") {
    PINION_ASSIGN(scheme.activation_group, Require<int64_t>(*activations, "group_size"));
    PINION_TRY(CheckGroup(scheme.activation_group));
    scheme.activation_group = std::max<int64_t>(scheme.activation_group, 0);
    scheme.activations = ActivationRounding::kPerToken;
  }
  return {};
}

// compressed-tensors' "float-quantized".
Result<QuantScheme> ReadFloats(const Json& group, const Json& weights) {
  QuantScheme scheme;
  scheme.method = QuantMethod::kFp8;
  PINION_ASSIGN(const int64_t bits, Require<int64_t>(weights, "num_bits"));
  PINION_ASSIGN(const std::string type, Optional<std::string>(weights, "type", "float"));
  if (bits != 8 || type != "float") return Unsupported("weights", StrCat(type, bits), "float8");
  PINION_ASSIGN(const std::string strategy, Optional<std::string>(weights, "strategy", "tensor"));
  if (strategy == "channel") {
    scheme.block_rows = 1;
  } else if (strategy == "block") {
    PINION_TRY(ReadBlock(weights, "block_structure", scheme));
  } else if (strategy != "tensor") {
    return Unsupported("strategy", strategy, "channel, tensor or block for float8");
  }
  PINION_TRY(ReadFloatActivations(group, scheme));
  return scheme;
}

// compressed-tensors' "nvfp4-pack-quantized". Activations are not rounded.
Result<QuantScheme> ReadNvfp4(const Json& weights) {
  QuantScheme scheme;
  scheme.method = QuantMethod::kNvfp4;
  PINION_ASSIGN(const int64_t bits, Optional<int64_t>(weights, "num_bits", 4));
  PINION_ASSIGN(const std::string type, Optional<std::string>(weights, "type", "float"));
  if (bits != 4 || type != "float") return Unsupported("weights", StrCat(type, bits), "float4");
  PINION_ASSIGN(scheme.group, Optional<int64_t>(weights, "group_size", 16));
  if (scheme.group != 16) return Unsupported("group_size", StrCat(scheme.group), "16 for NVFP4");
  return scheme;
}

// NVIDIA's. Activations are not rounded to 4 bits, and what it says of the KV cache is not applied.
Result<QuantScheme> ReadModelOpt(const Json& config) {
  PINION_ASSIGN(const std::string kind, Optional<std::string>(config, "quant_algo", ""));
  if (kind == "NVFP4" || kind == "W4A16_NVFP4") return ReadNvfp4(config);
  if (kind != "FP8")
    return Unsupported("quant_algo", kind,
                       "NVFP4, W4A16_NVFP4 or FP8; the model that it was made of can be quantised "
                       "with `pinion model quantize`");
  QuantScheme scheme;
  scheme.method = QuantMethod::kFp8;
  scheme.activations = ActivationRounding::kStatic;
  return scheme;
}

Result<QuantScheme> ReadGroup(const Json& config, const Json& group) {
  QuantScheme scheme;
  PINION_ASSIGN(const std::string whole, Optional<std::string>(config, "format", ""));
  PINION_ASSIGN(const std::string format, Optional<std::string>(group, "format", whole));
  if (format != "int-quantized" && format != "pack-quantized" && format != "float-quantized" &&
      format != "nvfp4-pack-quantized")
    return Unsupported("format", format,
                       "int-quantized, pack-quantized, float-quantized or nvfp4-pack-quantized");
  scheme.method =
      format == "int-quantized" ? QuantMethod::kIntQuantized : QuantMethod::kPackQuantized;
  const Json* weights = group.Find("weights");
  if (!weights || !weights->is_object())
    return Fail(ErrorCode::kCorrupt, "'weights' of the quantisation is missing, want an object");
  if (format == "float-quantized") return ReadFloats(group, *weights);
  if (format == "nvfp4-pack-quantized") return ReadNvfp4(*weights);
  PINION_ASSIGN(const int64_t bits, Require<int64_t>(*weights, "num_bits"));
  PINION_TRY(CheckBits(bits));
  scheme.bits = static_cast<int>(bits);
  PINION_ASSIGN(const std::string type, Optional<std::string>(*weights, "type", "int"));
  if (type != "int") return Unsupported("type", type.substr(0, 60), "int for integers");
  if (scheme.method == QuantMethod::kIntQuantized && bits != 8)
    return Unsupported("num_bits", StrCat(bits), "8 if the format is int-quantized");
  PINION_ASSIGN(const std::string strategy, Optional<std::string>(*weights, "strategy", "channel"));
  if (strategy == "group") {
    PINION_ASSIGN(scheme.group, Require<int64_t>(*weights, "group_size"));
    PINION_TRY(CheckGroup(scheme.group));
  } else if (strategy != "channel" && strategy != "tensor") {
    return Unsupported("strategy", strategy, "channel, tensor or group");
  }
  PINION_ASSIGN(scheme.activations, ReadActivations(group));
  return scheme;
}

// A rotation that is folded into weights is part of them; one of activations would have to be
// computed.
Status CheckTransform(const Json& config) {
  const Json* transform = config.Find("transform_config");
  const Json* schemes = transform ? transform->Find("config_groups") : nullptr;
  if (!schemes || !schemes->is_object()) return {};
  for (const auto& [name, scheme] : schemes->object()) {
    const Json* parts = scheme.Find("apply");
    for (const Json& part : parts && parts->is_array() ? parts->array() : Json::Array{}) {
      PINION_ASSIGN(const std::string location, Optional<std::string>(part, "location", "input"));
      if (!location.starts_with("weight_"))
        return Unsupported("transform_config", location.substr(0, 60),
                           "transforms of weights alone, weight_input or weight_output");
    }
  }
  return {};
}

Result<QuantScheme> ReadCompressedTensors(const Json& config) {
  PINION_TRY(CheckTransform(config));
  const Json* groups = config.Find("config_groups");
  if (!groups || !groups->is_object() || groups->object().size() != 1)
    return Fail(ErrorCode::kUnsupported,
                "'config_groups' of the quantisation does not hold exactly one group, and Pinion "
                "reads checkpoints whose linears are all quantised alike");
  return ReadGroup(config, groups->object()[0].second);
}

// Lists of modules that are not quantised. Their tensors say it, too, so that nothing else reads
// these; a value of another kind is still a sign of a broken file.
Status CheckExceptions(const Json& config) {
  for (const char* key : {"modules_to_not_convert", "ignore"}) {
    const Json* list = config.Find(key);
    if (!list || list->is_null()) continue;
    const auto is_name = [](const Json& name) { return name.is_string(); };
    if (!list->is_array() || !std::all_of(list->array().begin(), list->array().end(), is_name))
      return Unsupported(key, list->Dump().substr(0, 60), "a list of names");
  }
  return {};
}

struct Method {
  PublishedFormat published;
  Result<QuantScheme> (*read)(const Json& config);
};
constexpr Method kMethods[] = {
    {{"compressed-tensors", "compressed-tensors",
      "W8A8 (dynamic or static scales of activations), packed int4 and int8 (symmetric or not), "
      "FP8 (e4m3, a scale for each block, row or matrix; activations are rounded, too), NVFP4"},
     ReadCompressedTensors},
    {{"awq", "AWQ", "4 bits, `gemm` layout"}, ReadAwq},
    {{"gptq", "GPTQ", "4 and 8 bits, with or without act-order"}, ReadGptq},
    {{"fp8", "FP8 (e4m3), as DeepSeek and Qwen publish it",
      "a scale for each block (128 x 128, or any other) or matrix; activations are rounded, too"},
     ReadFp8},
    {{"modelopt", "NVFP4 and FP8 (e4m3), as ModelOpt publishes them",
      "NVFP4 weights alone or with activations, whose own format is not applied; FP8 with a scale "
      "for each matrix and its activations; also if only hf_quant_config.json says so"},
     ReadModelOpt},
    {{"mxfp4", "MXFP4, as OpenAI publishes GPT-OSS", "the experts"}, ReadMxfp4}};

}  // namespace

const char* Name(QuantMethod method) {
  constexpr const char* kNames[] = {"compressed-tensors int-quantized",
                                    "compressed-tensors pack-quantized",
                                    "AWQ",
                                    "GPTQ",
                                    "FP8",
                                    "NVFP4",
                                    "MXFP4"};
  return kNames[static_cast<size_t>(method)];
}

std::vector<PublishedFormat> PublishedFormats() {
  std::vector<PublishedFormat> formats;
  for (const Method& method : kMethods) formats.push_back(method.published);
  return formats;
}

Result<std::optional<QuantScheme>> ReadScheme(const Json& config) {
  const Json* found = nullptr;
  for (const char* key : {"quantization_config", "compression_config"})
    if (const Json* entry = config.Find(key); entry && !entry->is_null() && !found) found = entry;
  if (!found) return std::optional<QuantScheme>();
  if (!found->is_object())
    return Fail(ErrorCode::kCorrupt,
                StrCat("'quantization_config' is ", found->type_name(), ", want an object"));
  PINION_TRY(CheckExceptions(*found));
  PINION_ASSIGN(const std::string method,
                Optional<std::string>(*found, "quant_method", "compressed-tensors"));
  for (const auto& [published, read] : kMethods) {
    if (method != published.quant_method) continue;
    PINION_ASSIGN(QuantScheme scheme, read(*found));
    return scheme;
  }
  return Unsupported("quant_method", method,
                     "compressed-tensors, awq, gptq, fp8, modelopt or mxfp4");
}

}  // namespace pinion
