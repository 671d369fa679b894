// The preparer's answers that need no engine: tokens of texts and texts of tokens.

#include <string>
#include <utility>
#include <vector>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/serve/field_readers.h"
#include "engine/serve/prepare.h"
#include "engine/serve/request_memory.h"
#include "engine/serve/schema_messages.h"
#include "engine/text/token_piece.h"
#include "engine/text/utf8.h"

namespace pinion {
namespace {

// `,"token_strs":[...]`, which may be many times as long as the ids.
ApiResult<void> AppendTokenTexts(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                 MemoryShare& memory, std::string& answer) {
  // A character that is escaped takes six; a string that grows has two copies and is twice its
  // size.
  constexpr size_t kEscaped = 6, kCopies = 3;
  size_t bytes = 0;
  for (const int32_t id : ids) bytes += kEscaped * tokenizer.TokenText(id).size() + 3;
  PINION_TRY(Reserve(memory, kCopies * bytes, "the texts of the tokens"));
  answer += ",\"token_strs\":[";
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) answer += ',';
    AppendJsonString(answer, tokenizer.TokenText(ids[i]));
  }
  answer += ']';
  return {};
}

// One of llama-server's: a token's text or, if that is not valid UTF-8, its bytes, beside its id.
void AppendPiece(const Tokenizer& tokenizer, int32_t id, std::string& answer) {
  const std::string piece = TokenPiece(tokenizer, id);
  answer += StrCat("{\"id\":", id, ",\"piece\":");
  if (IsValidUtf8(piece)) {
    AppendJsonString(answer, piece);
  } else {
    char before = '[';
    for (const char byte : piece) {
      answer += before;
      answer += std::to_string(static_cast<unsigned char>(byte));
      before = ',';
    }
    answer += ']';
  }
  answer += '}';
}

ApiResult<void> ReservePieces(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                              MemoryShare& memory) {
  // As for texts, and the names beside them. A token may begin with a space that it does not spell.
  constexpr size_t kEscaped = 6, kCopies = 3, kNames = 40;
  size_t bytes = 0;
  for (const int32_t id : ids) bytes += kEscaped * (tokenizer.TokenText(id).size() + 1) + kNames;
  return Reserve(memory, kCopies * bytes, "the pieces of the text");
}

}  // namespace

ApiResult<std::string> Preparer::Tokenize(HttpRequest& request, size_t max_model_len,
                                          const RenderChat& render) const {
  TokenizeRequest asked;
  {
    size_t unknown = 0;
    PINION_ASSIGN(const Json body, ReadBody(request, Api::kTokenize, unknown));
    PINION_ASSIGN(asked, ReadTokenizeRequest(body));
  }
  const bool texts = asked.token_texts, pieces = asked.pieces;
  PINION_ASSIGN(const std::vector<int32_t> ids,
                intake_.Tokenize(std::move(asked), render, request.memory));
  if (pieces) PINION_TRY(ReservePieces(tokenizer_, ids, request.memory));
  std::string answer =
      StrCat("{\"count\":", ids.size(), ",\"max_model_len\":", max_model_len, ",\"tokens\":[");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) answer += ',';
    if (pieces)
      AppendPiece(tokenizer_, ids[i], answer);
    else
      answer += std::to_string(ids[i]);
  }
  answer += ']';
  if (!texts) return answer + ",\"token_strs\":null}";
  PINION_TRY(AppendTokenTexts(tokenizer_, ids, request.memory, answer));
  return answer + "}";
}

ApiResult<std::string> Preparer::CountTokens(HttpRequest& request, const RenderChat& render) const {
  TokenizeRequest asked;
  {
    size_t unknown = 0;
    PINION_ASSIGN(const Json message, ReadBody(request, Api::kCountTokens, unknown));
    PINION_ASSIGN(const Json body, ChatBodyOfMessages(message, /*generates=*/false));
    PINION_ASSIGN(asked, ReadTokenizeRequest(body));
    asked.conversation.moves_instructions = true;
  }
  PINION_ASSIGN(const std::vector<int32_t> ids,
                intake_.Tokenize(std::move(asked), render, request.memory));
  return StrCat("{\"input_tokens\":", ids.size(), "}");
}

ApiResult<std::string> Preparer::ApplyTemplate(HttpRequest& request,
                                               const RenderChat& render) const {
  TokenizeRequest asked;
  {
    size_t unknown = 0;
    PINION_ASSIGN(const Json body, ReadBody(request, Api::kApplyTemplate, unknown));
    if (!body.Find("messages")) return Bad("messages", "'messages' must be a list");
    PINION_ASSIGN(asked, ReadTokenizeRequest(body));
  }
  PINION_ASSIGN(const std::string text, intake_.ApplyTemplate(std::move(asked), render));
  std::string answer = "{\"prompt\":";
  AppendJsonString(answer, text);
  return answer + "}";
}

ApiResult<std::string> Preparer::Detokenize(HttpRequest& request) const {
  size_t unknown = 0;
  PINION_ASSIGN(const Json body, ReadBody(request, Api::kDetokenize, unknown));
  PINION_ASSIGN(const DetokenizeRequest asked, ReadDetokenizeRequest(body));
  PINION_ASSIGN(const std::string text, intake_.Detokenize(asked));
  std::string answer = "{\"prompt\":";  // vLLM's name; llama-server's
  AppendJsonString(answer, text);
  answer += ",\"content\":";
  AppendJsonString(answer, text);
  return answer + "}";
}

}  // namespace pinion
