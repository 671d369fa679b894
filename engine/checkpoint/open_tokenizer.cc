#include "engine/base/strings.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/model.h"
#include "engine/checkpoint/preset.h"

namespace pinion {

Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const ModelFiles& files) {
  if (!files.folder.empty()) return LoadTokenizer(files.folder);
  if (files.gguf) {
    auto read = ReadGgufTokenizer(*files.gguf);
    if (!read)
      return Unexpected(std::move(read).error().In(StrCat("the tokenizer in ", files.name)));
    return MakeTokenizer(read->tokenizer, read->tokenizer_config);
  }
  const MadeUpTokenizer made_up = MakeUpTokenizer(files.config);
  return MakeTokenizer(made_up.tokenizer, made_up.tokenizer_config);
}

}  // namespace pinion
