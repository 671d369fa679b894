#pragma once

#include <cstddef>
#include <limits>
#include <string_view>

#include "engine/base/result.h"
#include "engine/run/task.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// The tokens of one text for a model that embeds or classifies it, and no more than `most`.
inline constexpr size_t kWholeText = std::numeric_limits<size_t>::max();
Result<Encoding> EncodeText(const Tokenizer& tokenizer, const PoolingFacts& facts,
                            std::string_view text, size_t most = kWholeText);

// The tokens of a query and a document whose match a reranker scores. A cross-encoder reads them as
// a pair; a generative reranker reads Qwen3-Reranker's question, whose instruction defines what
// counts as a match.
inline constexpr std::string_view kUsualInstruction =
    "Given a web search query, retrieve relevant passages that answer the query";
Result<Encoding> EncodePair(const Tokenizer& tokenizer, const PoolingFacts& facts,
                            std::string_view query, std::string_view document,
                            std::string_view instruction = kUsualInstruction,
                            size_t most = kWholeText);

}  // namespace pinion
