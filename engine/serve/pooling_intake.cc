#include "engine/serve/pooling_intake.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "engine/base/strings.h"
#include "engine/base/trace.h"
#include "engine/run/pooling_input.h"
#include "engine/serve/request_memory.h"

namespace pinion {
namespace {

// As in Intake.
constexpr size_t kBytesPerTextByte = 160;

// Cohere's own input types, and sentence-transformers' names of the prompts for them.
struct InputType {
  std::string_view name;
  std::array<const char*, 3> prompts;
};
constexpr auto kInputTypes =
    std::to_array<InputType>({{"search_document", {"document", "passage", "corpus"}},
                              {"search_query", {"query", "query", "query"}},
                              {"classification", {"classification", "Classification", ""}},
                              {"clustering", {"clustering", "Clustering", ""}}});

// Text of all pairs together: twice the usual bound of a body.
constexpr size_t kMaxPairBytes = size_t{64} << 20;

const char* FieldOf(const GenerationRequest& request) {
  const Api api = request.api;
  if (api == Api::kCohereEmbed) return "texts";
  if (api == Api::kLlamaEmbed) return "content";
  return api == Api::kScore || api == Api::kRerank ? request.pooling.document_field : "input";
}

// Checks that the task and the form of vectors that the client wants fit the model's task.
ApiResult<void> CheckWishes(const PoolingWishes& wishes, const PoolingFacts& facts) {
  const bool embeds = facts.task == ModelTask::kEmbed;
  const bool fits =
      embeds ? wishes.task == "embed" : wishes.task == "classify" || wishes.task == "score";
  if (!wishes.task.empty() && !fits)
    return Unexpected(
        ApiError{400,
                 StrCat("'task' is '", wishes.task.substr(0, 40), "', want ",
                        embeds ? "embed" : "classify or score", ", which this model does"),
                 "task", ""});
  if (!wishes.instruction.empty() && !facts.yes_no)
    return Unexpected(ApiError{
        400, "'instruction' is for generative rerankers, which this model is not; leave it out",
        "instruction", ""});
  if (embeds) return {};
  const char* name = wishes.dimensions > 0 ? "dimensions"
                     : wishes.normalises   ? "normalize"
                                           : nullptr;
  if (!name) return {};
  return Unexpected(ApiError{
      400, StrCat("'", name, "' is for embeddings, but the model scores texts; leave it out"), name,
      ""});
}

ApiResult<void> CheckDimensions(const GenerationRequest& request, const PoolingFacts& facts) {
  const PoolingWishes& wishes = request.pooling;
  const char* name = request.api == Api::kCohereEmbed ? "output_dimension" : "dimensions";
  if (wishes.dimensions > facts.width)
    return Unexpected(ApiError{400,
                               StrCat("'", name, "' is ", wishes.dimensions, ", want at most ",
                                      facts.width, ", the model's"),
                               name, ""});
  const size_t width = wishes.dimensions > 0 ? wishes.dimensions : facts.width;
  const bool packs = std::any_of(wishes.types.begin(), wishes.types.end(), [](const auto& type) {
    return type == "binary" || type == "ubinary";
  });
  if (!packs || width % 8 == 0) return {};
  return Unexpected(
      ApiError{400,
               StrCat("'embedding_types' has a binary type, which needs a multiple of "
                      "8 elements, and vectors have ",
                      width, "; send another 'output_dimension'"),
               "embedding_types", ""});
}

// `way_out`: how the client can have its texts cut.
ApiResult<void> FitLength(const Encoding& encoding, size_t max_model_len, const char* field,
                          const char* way_out) {
  if (encoding.ids.empty())
    return Unexpected(ApiError{400, StrCat("'", field, "' has a text without tokens"), field, ""});
  if (encoding.ids.size() <= max_model_len) return {};
  return Unexpected(
      ApiError{400,
               StrCat("'", field, "' has a text of ", encoding.ids.size(), " tokens, want at most ",
                      max_model_len, "; shorten it", way_out),
               field, "context_length_exceeded"});
}

// One query is read once for each document.
ApiResult<void> FitPairs(const std::vector<std::string>& queries, const PoolingWishes& wishes) {
  size_t bytes = wishes.instruction.size() * wishes.documents.size();
  for (size_t i = 0; i < wishes.documents.size(); ++i)
    bytes += queries[queries.size() == 1 ? 0 : i].size() + wishes.documents[i].size();
  if (bytes <= kMaxPairBytes) return {};
  return Unexpected(ApiError{
      400,
      StrCat("the texts of all ", wishes.documents.size(), " pairs make ", bytes,
             " bytes, want at most ", kMaxPairBytes, "; shorten them or send fewer at once"),
      wishes.document_field, ""});
}

}  // namespace

ApiResult<void> PoolingIntake::CheckModel(const GenerationRequest& request,
                                          size_t max_model_len) const {
  if (!request.model.empty() && !model_.IsCalled(request.model))
    return Unexpected(UnknownModel(request.model, model_));
  const PoolingFacts& facts = model_.pooling;
  PINION_TRY(CheckWishes(request.pooling, facts));
  PINION_TRY(CheckDimensions(request, facts));
  if (!request.truncate_to) return {};
  const char* name = "truncate_prompt_tokens";
  if (facts.yes_no)
    return Unexpected(ApiError{
        400, StrCat("'", name, "' would cut off the question of a generative reranker"), name, ""});
  // Cohere's is an upper bound.
  if (request.api == Api::kCohereEmbed) return {};
  if (*request.truncate_to > 0 && static_cast<size_t>(*request.truncate_to) > max_model_len)
    return Unexpected(ApiError{400,
                               StrCat("'", name, "' is ", *request.truncate_to,
                                      ", want at most the model's ", max_model_len),
                               name, ""});
  return {};
}

ApiResult<Encoding> PoolingIntake::EncodeOne(std::string_view text, size_t most, const char* field,
                                             MemoryShare& memory) const {
  const size_t before = memory.bytes();
  PINION_TRY(Reserve(memory, kBytesPerTextByte * text.size(),
                     StrCat("the tokens of a text of ", text.size(), " bytes")));
  auto encoding = EncodeText(tokenizer_, model_.pooling, text, most);
  if (!encoding) return Unexpected(ApiError{400, encoding.error().message, field, ""});
  memory.ShrinkTo(before + 2 * encoding->ids.size() * sizeof(int32_t));
  return std::move(*encoding);
}

// The text of a query's or document's first tokens, as the tokenizer writes it; all of one that has
// no more.
ApiResult<std::string> PoolingIntake::FirstTokens(const std::string& text, size_t most,
                                                  const char* field, MemoryShare& memory) const {
  if (most == 0) return text;
  const size_t before = memory.bytes();
  PINION_TRY(Reserve(memory, kBytesPerTextByte * text.size(),
                     StrCat("the tokens of a text of ", text.size(), " bytes")));
  auto ids = tokenizer_.Encode(text, false);
  if (!ids) return Unexpected(ApiError{400, ids.error().message, field, ""});
  const bool fits = ids->size() <= most;
  if (!fits) ids->resize(most);
  std::string first = fits ? text : tokenizer_.Decode(*ids, /*skip_special_tokens=*/true);
  memory.ShrinkTo(before);
  return first;
}

// Queries and documents: in pairs, or one after the other for a model that embeds.
ApiResult<std::vector<Encoding>> PoolingIntake::EncodeTexts(const PoolingWishes& wishes,
                                                            size_t most,
                                                            MemoryShare& memory) const {
  std::vector<Encoding> texts;
  const bool pairs = model_.pooling.scores_pairs();
  std::vector<std::string> queries;
  for (const std::string& query : wishes.queries) {
    PINION_ASSIGN(queries.emplace_back(),
                  FirstTokens(query, wishes.query_tokens, wishes.query_field, memory));
    if (pairs) continue;
    PINION_ASSIGN(texts.emplace_back(),
                  EncodeOne(queries.back(), most, wishes.query_field, memory));
  }
  if (pairs) PINION_TRY(FitPairs(queries, wishes));
  for (size_t i = 0; i < wishes.documents.size(); ++i) {
    PINION_ASSIGN(
        const std::string document,
        FirstTokens(wishes.documents[i], wishes.document_tokens, wishes.document_field, memory));
    const std::string& query = queries[queries.size() == 1 ? 0 : i];
    PINION_ASSIGN(texts.emplace_back(),
                  pairs ? EncodeTwo(wishes, query, document, most, memory)
                        : EncodeOne(document, most, wishes.document_field, memory));
  }
  return texts;
}

ApiResult<Encoding> PoolingIntake::EncodeTwo(const PoolingWishes& wishes, const std::string& query,
                                             const std::string& document, size_t most,
                                             MemoryShare& memory) const {
  const std::string_view instruction =
      wishes.instruction.empty() ? kUsualInstruction : wishes.instruction;
  const size_t before = memory.bytes();
  const size_t bytes = instruction.size() + query.size() + document.size();
  PINION_TRY(Reserve(memory, kBytesPerTextByte * bytes,
                     StrCat("the tokens of a pair of ", bytes, " bytes")));
  auto encoding = EncodePair(tokenizer_, model_.pooling, query, document, instruction, most);
  if (!encoding)
    return Unexpected(ApiError{400, encoding.error().message, wishes.document_field, ""});
  memory.ShrinkTo(before + 2 * encoding->ids.size() * sizeof(int32_t));
  return std::move(*encoding);
}

ApiResult<Encoding> PoolingIntake::EncodeInput(const GenerationRequest& request,
                                               const TextOrTokens& input, size_t most,
                                               MemoryShare& memory) const {
  if (const auto* text = std::get_if<std::string>(&input)) {
    if (request.add_special_tokens) return EncodeOne(*text, most, "input", memory);
    const size_t before = memory.bytes();
    PINION_TRY(Reserve(memory, kBytesPerTextByte * text->size(),
                       StrCat("the tokens of a text of ", text->size(), " bytes")));
    auto ids = tokenizer_.Encode(*text, false);
    if (!ids) return Unexpected(ApiError{400, ids.error().message, "input", ""});
    if (ids->size() > most) ids->resize(most);
    memory.ShrinkTo(before + 2 * ids->size() * sizeof(int32_t));
    return Encoding{std::move(*ids), {}};
  }
  Encoding encoding{std::get<std::vector<int32_t>>(input), {}};
  for (const int32_t id : encoding.ids)
    if (static_cast<size_t>(id) >= model_.vocabulary)
      return Unexpected(
          ApiError{400, StrCat("'input' holds token ", id, ", want ids below ", model_.vocabulary),
                   "input", ""});
  if (encoding.ids.size() > most) encoding.ids.resize(most);
  return encoding;
}

// The prompt before texts of the wishes' input type. Cohere's own types, which its clients always
// send, mean none to a model that has no prompt for them.
ApiResult<std::string> PoolingIntake::PromptOf(const PoolingWishes& wishes) const {
  const std::string& type = wishes.input_type;
  const auto& prompts = model_.pooling.embedder.prompts;
  if (type.empty()) return std::string();
  if (const auto found = prompts.find(type); found != prompts.end()) return found->second;
  for (const InputType& known : kInputTypes) {
    if (known.name != type) continue;
    for (const char* name : known.prompts)
      if (const auto found = prompts.find(name); found != prompts.end()) return found->second;
    return std::string();
  }
  std::vector<std::string> names;
  for (const InputType& known : kInputTypes) names.emplace_back(known.name);
  for (const auto& [name, prompt] : prompts) names.push_back(name);
  return Unexpected(ApiError{
      400, StrCat("'input_type' is '", type.substr(0, 40), "', want one of ", Join(names, ", ")),
      "input_type", ""});
}

ApiResult<std::vector<Encoding>> PoolingIntake::Prepare(const GenerationRequest& request,
                                                        size_t max_model_len,
                                                        MemoryShare& memory) const {
  const TraceSpan span("tokenise");
  PINION_TRY(CheckModel(request, max_model_len));
  const int asked = request.truncate_to.value_or(0);
  const size_t most = asked == 0  ? kWholeText
                      : asked < 0 ? max_model_len
                                  : std::min(max_model_len, static_cast<size_t>(asked));
  std::vector<Encoding> texts;
  for (const TextOrTokens& input : request.prompts) {
    PINION_ASSIGN(texts.emplace_back(), EncodeInput(request, input, most, memory));
  }
  if (request.api == Api::kCohereEmbed) {
    PINION_ASSIGN(const std::string prompt, PromptOf(request.pooling));
    for (const std::string& text : request.pooling.documents) {
      PINION_ASSIGN(texts.emplace_back(), EncodeOne(prompt + text, most, "texts", memory));
    }
  } else if (request.prompts.empty()) {
    PINION_ASSIGN(texts, EncodeTexts(request.pooling, most, memory));
  }
  const size_t fits = std::min(max_model_len, request.pooling.text_tokens.value_or(max_model_len));
  const char* way_out = model_.pooling.yes_no              ? ""
                        : request.api == Api::kCohereEmbed ? ", or send 'truncate': \"END\""
                                                           : ", or send 'truncate_prompt_tokens'";
  for (const Encoding& text : texts) PINION_TRY(FitLength(text, fits, FieldOf(request), way_out));
  return texts;
}

}  // namespace pinion
