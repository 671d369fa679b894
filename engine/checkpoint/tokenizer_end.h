#pragma once

#include <string>

#include "engine/base/result.h"
#include "engine/spec/spec.h"

namespace pinion {

// Adds to spec.eos_ids the token that tokenizer_config.json of a folder calls `eos_token`, if the
// file says which id it has (`added_tokens_decoder`). As in vLLM an answer ends with it: fine-tuned
// models often end their turns with a token that their config.json does not name. A file that is
// absent or malformed adds nothing; the reader of tokenizers says what is wrong with it.
Status JoinTokenizerEnd(const std::string& folder, DecoderSpec& spec);

}  // namespace pinion
