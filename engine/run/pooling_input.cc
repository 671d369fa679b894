#include "engine/run/pooling_input.h"

#include <optional>

#include "engine/base/strings.h"

namespace pinion {
namespace {

// As Qwen3-Reranker was trained; the answer that would follow is yes or no.
std::string QuestionOf(std::string_view query, std::string_view document,
                       std::string_view instruction) {
  return StrCat(
      "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
      "and "
      "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
      "<|im_start|>user\n<Instruct>: ",
      instruction, "\n<Query>: ", query, "\n<Document>: ", document,
      "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

Result<Encoding> EncodeWhole(const Tokenizer& tokenizer, const PoolingFacts& facts,
                             std::string_view text, std::optional<std::string_view> second,
                             size_t most) {
  PINION_ASSIGN(Encoding encoding, tokenizer.EncodeWhole(text, second, most));
  if (!facts.has_types) encoding.types.clear();
  return encoding;
}

}  // namespace

Result<Encoding> EncodeText(const Tokenizer& tokenizer, const PoolingFacts& facts,
                            std::string_view text, size_t most) {
  return EncodeWhole(tokenizer, facts, text, {}, most);
}

Result<Encoding> EncodePair(const Tokenizer& tokenizer, const PoolingFacts& facts,
                            std::string_view query, std::string_view document,
                            std::string_view instruction, size_t most) {
  if (!facts.yes_no) return EncodeWhole(tokenizer, facts, query, document, most);
  PINION_ASSIGN(auto ids, tokenizer.Encode(QuestionOf(query, document, instruction), false));
  return Encoding{std::move(ids), {}};
}

}  // namespace pinion
