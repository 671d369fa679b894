#pragma once

#include <optional>
#include <string_view>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/checkpoint/embedder.h"
#include "engine/checkpoint/gguf_architectures.h"
#include "engine/checkpoint/gguf_header.h"

namespace pinion {

// An error if the file asks for another direction of attention than the architecture has here.
Status CheckAttention(const GgufHeader& header, const GgufArchitecture& architecture);

// The fields of config.json that only models with attention in both directions have: of an
// encoder's tables, and of a reranker's head.
Result<Json> EncoderFields(const GgufHeader& header, const GgufArchitecture& architecture);

// The dense layers behind the pooling, in order, by their names in files.
inline constexpr std::string_view kDenseModules[] = {"dense_2", "dense_3"};

// The head of a generative reranker, by its name in files.
inline constexpr std::string_view kYesNoModule = "cls.output";

// Whether a tensor is an encoder's table of positions or of token types.
bool IsEncoderTable(std::string_view tensor);

// How the file's texts become embeddings, if `ARCHITECTURE.pooling_type` says it. Files do not say
// whether embeddings are normalised; llama.cpp's server does it. Errors name the value.
Result<std::optional<EmbedderSpec>> ReadGgufEmbedder(const GgufHeader& header);

// The head of a file whose `ARCHITECTURE.pooling_type` says that it ranks, if its architecture
// generates: two rows of the output layer, of the tokens "yes" and "no". Older files have the whole
// layer alone; those generate.
Result<std::optional<DenseSpec>> ReadGgufYesNoHead(const GgufHeader& header);

}  // namespace pinion
