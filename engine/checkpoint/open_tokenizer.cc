#include <filesystem>

#include "engine/base/strings.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/model.h"
#include "engine/checkpoint/preset.h"

namespace pinion {
namespace {

Result<std::unique_ptr<Tokenizer>> FromGguf(const GgufFile& gguf) {
  PINION_ASSIGN(const GgufTokenizer read, ReadGgufTokenizer(gguf));
  return MakeTokenizer(read.tokenizer, read.tokenizer_config);
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const ModelFiles& files) {
  if (!files.folder.empty()) return LoadTokenizer(files.folder);
  if (files.gguf) {
    auto made = FromGguf(*files.gguf);
    if (!made)
      return Unexpected(std::move(made).error().In(StrCat("the tokenizer in ", files.name)));
    return made;
  }
  const MadeUpTokenizer made_up = MakeUpTokenizer(files.config);
  return MakeTokenizer(made_up.tokenizer, made_up.tokenizer_config);
}

GrammarVocabulary GrammarVocabularyOf(const ModelFiles& files) {
  GrammarVocabulary vocabulary;
  vocabulary.size = static_cast<size_t>(files.spec.vocabulary);
  vocabulary.eos_ids = files.spec.eos_ids;
  if (const std::string file = files.folder + "/tokenizer.json"; !files.folder.empty()) {
    if (std::filesystem::exists(file)) vocabulary.file = file;
    return vocabulary;
  }
  vocabulary.make_tokenizer = [gguf = files.gguf, config = files.config]() -> Result<std::string> {
    if (!gguf) return MakeUpTokenizer(config).tokenizer.Dump();
    PINION_ASSIGN(const auto read, ReadGgufTokenizer(*gguf));
    return read.tokenizer.Dump();
  };
  return vocabulary;
}

}  // namespace pinion
