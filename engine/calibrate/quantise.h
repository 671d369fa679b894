#pragma once

#include <cstdint>
#include <string>

#include "engine/base/result.h"
#include "engine/run/options.h"

namespace pinion {

struct QuantiseOptions {
  std::string model;        // a folder, or org/name in the Hugging Face cache
  std::string target;       // w8a8, awq-int4 or gptq-int4
  std::string calibration;  // a text (FILE.txt) or JSONL as for `pinion score`; "": none
  std::string folder;       // to make
  int64_t group = 128;      // columns that share a scale, of 4 bits; -1: whole rows
  size_t tokens = 16384;    // of calibration, at most
  EngineOptions engine;     // threads and ISA path of calibration
};

// Writes a quantised copy of a checkpoint in a format that other engines load: compressed-tensors
// int-quantized, AWQ's gemm packing, GPTQ version 1. Weights are rounded to the nearest code, or as
// calibration finds best; embeddings, norms, routers and the head keep their dtype. The folder's
// other files are copied. Errors (a model that is quantised already, weights that are not finite, a
// group that does not divide a matrix, a folder that holds a model, a full disk) leave nothing
// behind.
Status Quantise(const QuantiseOptions& options);

}  // namespace pinion
