#include "engine/model/model.h"
#include "engine/model/preset.h"

namespace pinion {

Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const ModelFiles& files) {
  if (!files.folder.empty()) return LoadTokenizer(files.folder);
  const MadeUpTokenizer made_up = MakeUpTokenizer(files.config);
  return MakeTokenizer(made_up.tokenizer, made_up.tokenizer_config);
}

}  // namespace pinion
