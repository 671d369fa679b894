// Writes a checkpoint folder with made-up weights, one tensor's rows at a time.

#include "engine/base/strings.h"
#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/checkpoint/preset.h"
#include "engine/checkpoint/published.h"
#include "engine/checkpoint/rounded_tensor.h"

namespace pinion {
namespace {

Result<DecoderSpec> CheckConfig(const Json& config, const std::string& dtype) {
  PINION_ASSIGN(DecoderSpec spec, ReadSpec(config));
  if (dtype != "bfloat16" && dtype != "float16" && dtype != "float32")
    return Fail(ErrorCode::kUsage,
                StrCat("dtype '", dtype, "' is not known, want bfloat16, float16 or float32"));
  if (spec.vocabulary < kSmallestMadeUpVocabulary)
    return Fail(ErrorCode::kUsage, StrCat("'vocab_size' is ", spec.vocabulary,
                                          ", too small for a made-up tokenizer, want ",
                                          kSmallestMadeUpVocabulary, " or more"));
  return spec;
}

// The config with the dtype of the written weights, under the key that it already uses.
Json WithDtype(Json config, const std::string& dtype) {
  const bool modern = config.Find("dtype") != nullptr;
  config.Set(modern ? "dtype" : "torch_dtype", dtype);
  return config;
}

}  // namespace

Status WriteCheckpoint(const Json& given, const std::string& dtype,
                       const std::optional<QuantScheme>& scheme, uint64_t seed,
                       const std::string& folder, uint64_t shard_bytes) {
  PINION_ASSIGN(const DecoderSpec spec, CheckConfig(given, dtype));
  Json config = given;
  auto source = MakeUpWeights(spec, dtype, seed);
  if (scheme) {
    PINION_ASSIGN(source, RoundLinears(std::move(source), spec, *scheme));
    config.Set("quantization_config", PublishedConfig(*scheme, PlainLinears(spec)));
  }
  const MadeUpTokenizer tokenizer = MakeUpTokenizer(config);
  return WriteModelFolder(spec, *source, scheme,
                          {{"tokenizer.json", tokenizer.tokenizer.Dump() + "\n"},
                           {"tokenizer_config.json", tokenizer.tokenizer_config.Dump(2) + "\n"},
                           {"generation_config.json", tokenizer.generation_config.Dump(2) + "\n"},
                           {"config.json", WithDtype(config, dtype).Dump(2) + "\n"}},
                          folder, shard_bytes);
}

}  // namespace pinion
