#include "engine/text/word_model.h"

#include <cstdio>
#include <utility>

#include "engine/base/strings.h"
#include "engine/text/bpe.h"
#include "engine/text/unigram.h"
#include "engine/text/word_piece.h"

namespace pinion {
namespace {

template <typename Model>
Result<std::unique_ptr<const WordModel>> Make(const Json& json) {
  PINION_ASSIGN(Model model, Model::Make(json));
  return std::unique_ptr<const WordModel>(std::make_unique<Model>(std::move(model)));
}

// Old files do not state the type.
std::string GuessType(const Json& model) {
  if (model.Find("merges")) return "BPE";
  if (model.Find("continuing_subword_prefix")) return "WordPiece";
  return model.Find("unk_id") ? "Unigram" : "";
}

}  // namespace

Result<std::unique_ptr<const WordModel>> MakeWordModel(const Json& model) {
  if (!model.is_object()) return Fail(ErrorCode::kCorrupt, "'model' is missing, want an object");
  PINION_ASSIGN(const std::string type, Optional<std::string>(model, "type", GuessType(model)));
  if (type == "BPE") return Make<Bpe>(model);
  if (type == "WordPiece") return Make<WordPiece>(model);
  if (type == "Unigram") return Make<Unigram>(model);
  return Fail(ErrorCode::kUnsupported, StrCat("unknown tokenizer model '", type,
                                              "', Pinion knows BPE, WordPiece and Unigram"));
}

Result<Vocabulary> ReadVocabulary(const Json& model) {
  const Json* tokens = model.Find("vocab");
  if (!tokens || !tokens->is_object())
    return Fail(ErrorCode::kCorrupt, "the model's 'vocab' is missing, want an object");
  Vocabulary vocabulary;
  for (const auto& [token, id] : tokens->object()) {
    if (!id.is_int())
      return Fail(ErrorCode::kCorrupt, StrCat("token '", token, "' has an id that is ",
                                              id.type_name(), ", want an integer"));
    PINION_TRY(vocabulary.Add(token, id.integer()));
  }
  return vocabulary;
}

std::vector<int32_t> ByteTokens(const Vocabulary& vocabulary) {
  std::vector<int32_t> ids;
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    ids.push_back(vocabulary.Find(name).value_or(-1));
  }
  return ids;
}

}  // namespace pinion
