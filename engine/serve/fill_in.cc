#include "engine/serve/fill_in.h"

#include <initializer_list>
#include <string_view>

#include "engine/base/strings.h"

namespace pinion {
namespace {

// The first of these names that the tokenizer reads as one token; "" if none. Qwen, Granite and
// StarCoder, Code Llama, DeepSeek, GLM.
std::string NameOf(const Tokenizer& tokenizer, std::initializer_list<const char*> names,
                   std::vector<int32_t>* ids = nullptr) {
  for (const char* name : names) {
    const auto id = tokenizer.TokenId(name);
    if (!id) continue;
    const auto read = tokenizer.Encode(name, /*add_special_tokens=*/false);
    if (!read || *read != std::vector<int32_t>{*id}) continue;
    if (ids) ids->push_back(*id);
    return name;
  }
  return "";
}

}  // namespace

std::optional<FillInTokens> FillInTokens::Find(const Tokenizer& tokenizer) {
  FillInTokens found;
  found.prefix_ = NameOf(tokenizer, {"<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "▁<PRE>",
                                     "<PRE>", "<｜fim▁begin｜>", "<|code_prefix|>"});
  found.suffix_ = NameOf(tokenizer, {"<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "▁<SUF>",
                                     "<SUF>", "<｜fim▁hole｜>", "<|code_suffix|>"});
  found.middle_ = NameOf(tokenizer, {"<|fim_middle|>", "<fim_middle>", "<fim-middle>", "▁<MID>",
                                     "<MID>", "<｜fim▁end｜>", "<|code_middle|>"});
  if (found.prefix_.empty() || found.suffix_.empty() || found.middle_.empty()) return {};
  found.repository_ =
      NameOf(tokenizer, {"<|repo_name|>", "<|fim_repo|>", "<reponame>"}, &found.ends_);
  found.file_ = NameOf(tokenizer, {"<|file_sep|>", "<file_sep>", "<filename>"}, &found.ends_);
  NameOf(tokenizer, {"<|fim_pad|>", "<fim_pad>", "<fim-pad>", "▁<EOT>", "<EOT>"}, &found.ends_);
  NameOf(tokenizer, {"<|endoftext|>", "<｜end▁of▁sentence｜>"}, &found.ends_);
  return found;
}

std::string FillInTokens::Prompt(const std::string& prefix, const FillIn& fill) const {
  std::string prompt;
  const bool named = !repository_.empty() && !file_.empty();
  if (named && !fill.others.empty()) prompt += repository_ + "project\n";
  for (const auto& [name, text] : fill.others)
    prompt += named ? StrCat(file_, name, "\n", text, "\n") : text + "\n";
  if (named && !fill.others.empty()) prompt += file_ + "file\n";
  return StrCat(prompt, prefix_, prefix, suffix_, fill.suffix, middle_, fill.begun);
}

}  // namespace pinion
