#pragma once

#include <memory>
#include <string>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// A tokenizer from a SentencePiece model file; sentencepiece.cc is the only user of that library.
// `config` (tokenizer_config.json or null) says whether BOS (default) and EOS are added.
Result<std::unique_ptr<Tokenizer>> LoadSentencePiece(const std::string& path, const Json& config);

}  // namespace pinion
