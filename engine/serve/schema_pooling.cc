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

constexpr auto kKinds = std::to_array<std::pair<std::string_view, VectorForm::Kind>>(
    {{"float", VectorForm::Kind::kNumbers},
     {"base64", VectorForm::Kind::kBase64},
     {"bytes", VectorForm::Kind::kBytes},
     {"bytes_only", VectorForm::Kind::kBytesOnly}});

constexpr auto kCohereTypes =
    std::to_array<std::string_view>({"float", "base64", "binary", "ubinary"});

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

ApiResult<size_t> ReadMostTokens(const Json& body, const char* field) {
  PINION_ASSIGN(const int most, Get<int>(body, field, 0));
  if (most < 0) return Bad(field, StrCat("'", field, "' is ", most, ", want at least 0 (all)"));
  return static_cast<size_t>(most);
}

Checked ReadMatching(const Json& body, PoolingWishes& wishes) {
  PINION_ASSIGN(wishes.query_tokens, ReadMostTokens(body, "max_tokens_per_query"));
  PINION_ASSIGN(wishes.document_tokens, ReadMostTokens(body, "max_tokens_per_doc"));
  PINION_ASSIGN(wishes.instruction, Get<std::string>(body, "instruction", ""));
  return {};
}

// Models see a text's tokens alone.
Checked CheckPadding(const Json& body) {
  PINION_ASSIGN(const std::string padding, Get<std::string>(body, "padding", "do_not_pad"));
  if (padding == "do_not_pad") return {};
  return Bad("padding", StrCat("'padding' is '", padding.substr(0, 40), "', want do_not_pad"));
}

// Each query has its document, or the only one has all.
Checked ReadPairs(const Json& body, PoolingWishes& wishes) {
  PINION_ASSIGN(const char* first, NameSent(body, {"queries", "text_1", "data_1"}));
  PINION_ASSIGN(const char* second, NameSent(body, {"documents", "text_2", "data_2", "items"}));
  PINION_ASSIGN(wishes.queries, ReadTexts(body, first));
  PINION_ASSIGN(wishes.documents, ReadTexts(body, second));
  wishes.query_field = first;
  wishes.document_field = second;
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

ApiResult<VectorForm> ReadVectorForm(const Json& body) {
  VectorForm form;
  PINION_ASSIGN(const std::string kind, Get<std::string>(body, "encoding_format", "float"));
  const auto known = std::find_if(kKinds.begin(), kKinds.end(),
                                  [&](const auto& one) { return one.first == kind; });
  if (known == kKinds.end())
    return Bad("encoding_format", StrCat("'encoding_format' is '", kind.substr(0, 40),
                                         "', want float, base64, bytes or bytes_only"));
  form.kind = known->second;
  PINION_ASSIGN(const std::string type, Get<std::string>(body, "embed_dtype", "float32"));
  const auto element = ElementTypeOf(type);
  if (!element)
    return Bad("embed_dtype", StrCat("'embed_dtype' is '", type.substr(0, 40), "', want one of ",
                                     ElementTypeNames()));
  form.type = *element;
  PINION_ASSIGN(form.order, Get<std::string>(body, "endianness", "native"));
  if (form.order == "native" || form.order == "little" || form.order == "big") return form;
  return Bad("endianness", StrCat("'endianness' is '", form.order.substr(0, 40),
                                  "', want native, little or big"));
}

Checked ReadDimensions(const Json& body, const char* field, PoolingWishes& wishes) {
  if (!Given(body, field)) return {};
  PINION_ASSIGN(const int dimensions, Get<int>(body, field, 0));
  if (dimensions < 1)
    return Bad(field, StrCat("'", field, "' is ", dimensions, ", want at least 1"));
  wishes.dimensions = static_cast<size_t>(dimensions);
  return {};
}

Checked ReadForm(const Json& body, PoolingWishes& wishes) {
  PINION_ASSIGN(wishes.form, ReadVectorForm(body));
  PINION_TRY(ReadDimensions(body, "dimensions", wishes));
  if (Given(body, "normalize")) {
    PINION_ASSIGN(wishes.normalises, Get<bool>(body, "normalize", true));
  }
  return {};
}

Checked ReadCohereTypes(const Json& body, PoolingWishes& wishes) {
  constexpr const char* kField = "embedding_types";
  const Json* types = body.Find(kField);
  if (!types || types->is_null() || (types->is_array() && types->array().empty())) {
    wishes.types = {"float"};
    return {};
  }
  if (!types->is_array())
    return Bad(kField, StrCat("'", kField, "' is ", Excerpt(*types), ", want a list"));
  for (const Json& type : types->array()) {
    const bool known = type.is_string() && std::find(kCohereTypes.begin(), kCohereTypes.end(),
                                                     type.string()) != kCohereTypes.end();
    if (!known)
      return Bad(kField, StrCat("'", kField, "' holds ", Excerpt(type),
                                ", want float, base64, binary or ubinary"));
    if (std::find(wishes.types.begin(), wishes.types.end(), type.string()) == wishes.types.end())
      wishes.types.push_back(type.string());
  }
  return {};
}

// Reads how to treat texts that are longer than the model's length or `max_tokens`: keep their
// first tokens, or refuse them. START would keep the last ones.
Checked ReadCohereTruncation(const Json& body, GenerationRequest& request) {
  PINION_ASSIGN(const std::string truncate, Get<std::string>(body, "truncate", "END"));
  if (truncate != "NONE" && truncate != "START" && truncate != "END")
    return Bad("truncate",
               StrCat("'truncate' is '", truncate.substr(0, 40), "', want NONE, START or END"));
  PINION_ASSIGN(const int most, Get<int>(body, "max_tokens", 0));
  if (most < 1 && Given(body, "max_tokens"))
    return Bad("max_tokens", StrCat("'max_tokens' is ", most, ", want at least 1"));
  if (truncate == "END")
    request.truncate_to = most > 0 ? most : -1;
  else if (most > 0)
    request.pooling.text_tokens = static_cast<size_t>(most);
  return {};
}

Checked ReadCohere(const Json& body, GenerationRequest& request) {
  PoolingWishes& wishes = request.pooling;
  const Json* texts = body.Find("texts");
  if (!texts || !texts->is_array() || texts->array().empty())
    return Bad("texts", StrCat("'texts' is ", texts ? Excerpt(*texts) : "missing",
                               ", want a list of at least one text"));
  for (const Json& text : texts->array()) {
    if (!text.is_string())
      return Bad("texts", StrCat("'texts' holds ", Excerpt(text), ", want strings"));
    wishes.documents.push_back(text.string());
  }
  PINION_ASSIGN(wishes.input_type, Get<std::string>(body, "input_type", ""));
  PINION_TRY(ReadCohereTypes(body, wishes));
  PINION_TRY(ReadDimensions(body, "output_dimension", wishes));
  return ReadCohereTruncation(body, request);
}

// How llama-server is told to scale a vector: 2, to length 1, is its default; -1: not at all.
Checked ReadLlamaEmbed(const Json& body, GenerationRequest& request) {
  constexpr const char* kField = "embd_normalize";
  PINION_ASSIGN(const int norm, Get<int>(body, kField, 2));
  if (norm != 2 && norm != -1)
    return Bad(kField, StrCat("'", kField, "' is ", norm, ", want 2 (to length 1) or -1 (none)"));
  request.pooling.normalises = norm == 2;
  PINION_ASSIGN(request.prompts, ReadPrompts(body, "content"));
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
  PINION_ASSIGN(const std::string side, Get<std::string>(body, "truncation_side", "right"));
  if (side != "right")
    return Bad("truncation_side", StrCat("'truncation_side' is '", side.substr(0, 20),
                                         "', want right, which keeps a text's first tokens"));
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
  PINION_TRY(ReadMatching(body, wishes));
  PINION_TRY(CheckPadding(body));
  if (api == Api::kCohereEmbed) {
    PINION_TRY(ReadCohere(body, request));
  } else if (api == Api::kLlamaEmbed) {
    PINION_TRY(ReadLlamaEmbed(body, request));
  } else if (api == Api::kScore) {
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
