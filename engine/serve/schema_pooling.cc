#include "engine/serve/schema_pooling.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/serve/field_readers.h"

namespace pinion {
namespace {

using Checked = ApiResult<void>;

// Newer and older names of one switch.
constexpr auto kOfActivation = std::to_array<std::string_view>({"activation", "use_activation"});

bool GivesVectors(Api api) { return api == Api::kEmbeddings || api == Api::kPooling; }

ApiResult<std::string> ReadDocument(const Json& value, std::string_view field) {
  const Json* text = value.is_object() ? value.Find("text") : &value;
  if (text && text->is_string()) return text->string();
  return Bad(field, StrCat("'", field, "' holds ", Excerpt(value),
                           ", want strings or objects with a string \"text\""));
}

// One text, or a list of them.
ApiResult<std::vector<std::string>> ReadTexts(const Json& body, std::string_view field) {
  const Json* value = body.Find(field);
  std::vector<std::string> texts;
  if (value && value->is_array() && !value->array().empty()) {
    for (const Json& item : value->array()) {
      PINION_ASSIGN(texts.emplace_back(), ReadDocument(item, field));
    }
    return texts;
  }
  if (value && (value->is_string() || value->is_object())) {
    PINION_ASSIGN(texts.emplace_back(), ReadDocument(*value, field));
    return texts;
  }
  return Bad(field, StrCat("'", field, "' is ", value ? Excerpt(*value) : "missing",
                           ", want a text or a list of texts"));
}

// Of several names of one field the one that was sent; the first if none was.
ApiResult<const char*> NameSent(const Json& body, std::initializer_list<const char*> names) {
  const char* sent = nullptr;
  for (const char* name : names) {
    if (!Given(body, name)) continue;
    if (sent)
      return Bad(name, StrCat("'", name, "' and '", sent,
                              "' are two names of one field; send one of them"));
    sent = name;
  }
  return sent ? sent : *names.begin();
}

Checked ReadDocumentTokens(const Json& body, PoolingWishes& wishes) {
  if (!Given(body, "max_tokens_per_doc")) return {};
  PINION_ASSIGN(const int most, Get<int>(body, "max_tokens_per_doc", 0));
  if (most < 1)
    return Bad("max_tokens_per_doc",
               StrCat("'max_tokens_per_doc' is ", most, ", want at least 1, or leave it out"));
  wishes.document_tokens = static_cast<size_t>(most);
  return {};
}

// Each query has its document, or the only one has all.
Checked ReadPairs(const Json& body, PoolingWishes& wishes) {
  PINION_ASSIGN(const char* first, NameSent(body, {"queries", "text_1", "data_1"}));
  PINION_ASSIGN(const char* second, NameSent(body, {"documents", "text_2", "data_2", "items"}));
  PINION_ASSIGN(wishes.queries, ReadTexts(body, first));
  PINION_ASSIGN(wishes.documents, ReadTexts(body, second));
  if (wishes.queries.size() == 1 || wishes.queries.size() == wishes.documents.size()) return {};
  return Bad(second, StrCat("'", first, "' has ", wishes.queries.size(), " texts and '", second,
                            "' ", wishes.documents.size(),
                            ", want one text in the first, or as many as in the second"));
}

Checked ReadRanking(const Json& body, PoolingWishes& wishes) {
  const Json* query = body.Find("query");
  if (!query || !query->is_string())
    return Bad("query",
               StrCat("'query' is ", query ? Excerpt(*query) : "missing", ", want a string"));
  wishes.queries = {query->string()};
  PINION_ASSIGN(wishes.documents, ReadTexts(body, "documents"));
  PINION_ASSIGN(const int top, Get<int>(body, "top_n", 0));
  if (top < 0) return Bad("top_n", StrCat("'top_n' is ", top, ", want at least 0 (all)"));
  wishes.top_n = static_cast<size_t>(top);
  PINION_ASSIGN(wishes.return_documents, Get<bool>(body, "return_documents", true));
  return {};
}

// Of the forms that vLLM gives numbers' bytes those that they have here.
Checked CheckBytes(const Json& body) {
  PINION_ASSIGN(const std::string type, Get<std::string>(body, "embed_dtype", "float32"));
  if (type != "float32")
    return Bad("embed_dtype", StrCat("'embed_dtype' is '", type.substr(0, 40), "', want float32"));
  PINION_ASSIGN(const std::string order, Get<std::string>(body, "endianness", "native"));
  if (order == "native" || order == "little") return {};
  return Bad("endianness", StrCat("'endianness' is '", order.substr(0, 40),
                                  "', want little, or native, which is the same here"));
}

Checked ReadForm(const Json& body, PoolingWishes& wishes) {
  PINION_ASSIGN(const std::string format, Get<std::string>(body, "encoding_format", "float"));
  if (format != "float" && format != "base64")
    return Bad("encoding_format",
               StrCat("'encoding_format' is '", format.substr(0, 40), "', want float or base64"));
  wishes.base64 = format == "base64";
  PINION_TRY(CheckBytes(body));
  if (Given(body, "dimensions")) {
    PINION_ASSIGN(const int dimensions, Get<int>(body, "dimensions", 0));
    if (dimensions < 1)
      return Bad("dimensions", StrCat("'dimensions' is ", dimensions, ", want at least 1"));
    wishes.dimensions = static_cast<size_t>(dimensions);
  }
  if (Given(body, "normalize")) {
    PINION_ASSIGN(wishes.normalises, Get<bool>(body, "normalize", true));
  }
  return {};
}

Checked ReadShared(const Json& body, GenerationRequest& request) {
  PINION_ASSIGN(request.model, Get<std::string>(body, "model", ""));
  PINION_ASSIGN(request.priority, Get<int>(body, "priority", 0));
  PINION_ASSIGN(request.add_special_tokens, Get<bool>(body, "add_special_tokens", true));
  for (const std::string_view name : kOfActivation) {
    PINION_ASSIGN(request.pooling.activates, Get<bool>(body, name, request.pooling.activates));
  }
  if (Given(body, "truncate_prompt_tokens")) {
    PINION_ASSIGN(request.truncate_to, Get<int>(body, "truncate_prompt_tokens", 0));
    if (*request.truncate_to < 1 && *request.truncate_to != -1)
      return Bad("truncate_prompt_tokens",
                 StrCat("'truncate_prompt_tokens' is ", *request.truncate_to,
                        ", want at least 1, or -1 for what fits the model"));
  }
  if (Given(body, "timeout")) {
    PINION_ASSIGN(request.timeout_s, Get<double>(body, "timeout", 0));
    if (!(*request.timeout_s > 0))
      return Bad("timeout", StrCat("'timeout' is ", *request.timeout_s, ", want seconds above 0"));
  }
  return {};
}

// Texts, or a conversation, of which the template makes one. As in vLLM its last message is not
// followed by the beginning of an answer, and the template writes the special tokens.
Checked ReadInput(const Json& body, GenerationRequest& request) {
  if (!Given(body, "messages")) {
    PINION_ASSIGN(request.prompts, ReadPrompts(body, "input"));
    return {};
  }
  if (Given(body, "input"))
    return Bad("messages", "'messages' and 'input' both say what to read; send one of them");
  request.chat = true;
  PINION_ASSIGN(request.conversation, ReadConversation(body));
  if (!Given(body, "add_generation_prompt")) request.conversation.add_generation_prompt = false;
  PINION_ASSIGN(request.add_special_tokens, Get<bool>(body, "add_special_tokens", false));
  return {};
}

}  // namespace

ApiResult<GenerationRequest> ReadPoolingRequest(Api api, const Json& body) {
  GenerationRequest request;
  request.api = api;
  PINION_TRY(ReadShared(body, request));
  PINION_TRY(ReadCacheSalt(body, request));
  PoolingWishes& wishes = request.pooling;
  PINION_TRY(ReadDocumentTokens(body, wishes));
  if (api == Api::kScore) {
    PINION_TRY(ReadPairs(body, wishes));
  } else if (api == Api::kRerank) {
    PINION_TRY(ReadRanking(body, wishes));
  } else {
    if (GivesVectors(api)) PINION_TRY(ReadForm(body, wishes));
    if (api == Api::kPooling) {
      PINION_ASSIGN(wishes.task, Get<std::string>(body, "task", ""));
    }
    PINION_TRY(ReadInput(body, request));
  }
  const size_t texts =
      std::max(request.prompts.size(), wishes.queries.size() + wishes.documents.size());
  if (texts > kMaxChoices)
    return Bad("", StrCat("the request has ", texts, " texts, want at most ", kMaxChoices));
  return request;
}

}  // namespace pinion
