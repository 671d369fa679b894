#pragma once

#include <optional>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion {

// How a checkpoint's linears are stored.
enum class QuantMethod {
  kIntQuantized,   // compressed-tensors "int-quantized": int8, not packed
  kPackQuantized,  // compressed-tensors "pack-quantized": eight codes of 4 bits (four of 8) a word
  kAwq,            // AWQ's "gemm" packing
  kGptq,           // GPTQ, zeros stored minus one (version 1) or unchanged (2)
  kFp8,            // e4m3 with a scale for each block, row or matrix
  kNvfp4,          // e2m1 with a scale in e4m3 for each 16 columns
  kMxfp4,          // GPT-OSS's experts: e2m1 with a power of two for each 32 columns
};
const char* Name(QuantMethod method);

// How activations are rounded before they are multiplied: to int8, or to e4m3 by kFp8.
enum class ActivationRounding {
  kNone,      // weight-only schemes
  kPerToken,  // scale absmax / 127 (e4m3: absmax / 448, maybe of a group) of each token
  kStatic,    // one scale (int8: and zero point) of each linear from the checkpoint
};

// `quantization_config` of config.json. The linears that it covers are recognised by their tensors.
struct QuantScheme {
  QuantMethod method = QuantMethod::kIntQuantized;
  int bits = 8;
  int64_t group = -1;  // columns that share a scale; -1: whole rows
  bool gptq_v1 = false;
  ActivationRounding activations = ActivationRounding::kNone;
  int64_t block_rows = 0, block_columns = 0;  // kFp8: that share a scale; 0: all
  int64_t activation_group = 0;    // kFp8, kPerToken: activations that share a scale; 0: all
  bool activation_powers = false;  // likewise: scales are rounded up to powers of two
};

// Empty if config.json has no quantisation. Methods, formats, widths and strategies that Pinion
// does not read are errors that name them and list the supported ones.
Result<std::optional<QuantScheme>> ReadScheme(const Json& config);

}  // namespace pinion
