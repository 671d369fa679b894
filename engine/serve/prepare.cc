#include "engine/serve/prepare.h"

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"
#include "engine/base/trace.h"
#include "engine/serve/field_readers.h"
#include "engine/serve/fields.h"
#include "engine/serve/kept_memory.h"
#include "engine/serve/request_memory.h"
#include "engine/serve/schema_llama.h"
#include "engine/serve/schema_messages.h"
#include "engine/serve/schema_responses.h"

namespace pinion {
namespace {

// Held-back text costs a stop string's length squared for each token.
constexpr size_t kMaxStopBytes = 1024;

ApiError BadField(const char* param, std::string message) {
  return {400, std::move(message), param, ""};
}

// How many times the tree's size a request may take: parsed, read, and for a chat as the template's
// input, as the library's tree, and as text for the helper.
size_t TreesOf(Api api) {
  switch (api) {
    case Api::kMessages:  // translated first, with more around each tool than it had
    case Api::kCountTokens:
    case Api::kResponses:
      return 7;
    case Api::kChat:
    case Api::kTokenize:
    case Api::kApplyTemplate:
    case Api::kLlama:  // translated first
    case Api::kInfill:
      return 4;
    default:
      return 2;
  }
}

ApiResult<Json> ParseBody(HttpRequest& request, Api api) {
  const TraceSpan span("parse", "bytes", request.body.size());
  if (Trim(request.body).empty())
    return Unexpected(ApiError{400, "the body is empty, want a JSON object", "", ""});
  PINION_TRY(Reserve(request.memory, TreesOf(api) * ParsedBytes(request.body),
                     StrCat("the values of a body of ", request.body.size(), " bytes")));
  auto body = Json::Parse(request.body);
  if (!body) return Unexpected(ApiError{400, StrCat("the body is ", body.error().message), "", ""});
  request.body = std::string();  // its memory pays for the objects made of it
  return std::move(*body);
}

// The body as completions or chats have it, whichever API it came by.
ApiResult<TranslatedBody> TranslateBody(Api api, Json body) {
  switch (api) {
    case Api::kMessages: {
      PINION_ASSIGN(Json chat, ChatBodyOfMessages(body, /*generates=*/true));
      TranslatedBody read{std::move(chat)};
      read.renamed = {{"response_format", "output_config.format"}, {"stop", "stop_sequences"}};
      // `thinking.budget_tokens` is sent to any model.
      read.thought_budget_is_wish = !Given(body, "thinking_token_budget");
      return read;
    }
    case Api::kResponses:
      return ChatBodyOfResponses(body);
    case Api::kLlama:
      return CompletionBodyOfLlama(body);
    case Api::kInfill:
      return CompletionBodyOfInfill(body);
    default:
      return TranslatedBody{std::move(body)};
  }
}

size_t CountOf(const Json& body, const char* key) {
  const Json* value = body.Find(key);
  if (!value) return 0;
  return value->is_array()    ? value->array().size()
         : value->is_object() ? value->object().size()
                              : 0;
}

ApiResult<void> CheckCount(const Json& body, const char* key, const char* flag, size_t most) {
  const size_t count = CountOf(body, key);
  if (count <= most) return {};
  return Unexpected(BadField(
      key, StrCat("'", key, "' has ", count, " entries, want at most ", most, " (", flag, ")")));
}

bool IsLong(const Json& stop) { return stop.is_string() && stop.string().size() > kMaxStopBytes; }

ApiResult<void> Check(const GenerationRequest& request, const Preparer::CheckGrammar& check) {
  if (!request.grammar || request.prompt_only) return {};
  const TraceSpan span("check grammar");
  const Status checked = check(*request.grammar);
  if (checked) return {};
  const Error& error = checked.error();
  const bool clients = error.code == ErrorCode::kUsage || error.code == ErrorCode::kUnsupported;
  return Unexpected(ApiError{clients ? 400 : 503,
                             StrCat("'", request.grammar_field, "': ", error.message),
                             request.grammar_field, ""});
}

// Moves the prompts' texts into the echoes.
void TakeEchoes(const Tokenizer& tokenizer, Prepared& prepared) {
  if (!prepared.request.echo) return;
  if (prepared.request.chat) prepared.echoes.push_back(std::move(prepared.request.echoed));
  if (prepared.request.chat) return;
  for (size_t i = 0; i < prepared.prompts.size(); ++i) {
    auto* text = std::get_if<std::string>(&prepared.request.prompts[i]);
    prepared.echoes.push_back(
        text ? std::move(*text)
             : tokenizer.Decode(prepared.prompts[i], prepared.request.skip_special_tokens));
  }
}

}  // namespace

size_t ParsedBytes(std::string_view text) {
  // A Json value has 40 bytes and a key 32. The vector that holds them doubles when it is full, and
  // while it moves there are three slots for each value: 120 bytes for a value of a list, 216 for
  // one of an object, which takes two of these characters. A control character between values
  // counts as one, too: an error message quotes it with 8 bytes, of which there are several copies.
  constexpr size_t kBytesPerMark = 120;
  size_t marks = 1;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"')
      in_string = !in_string;
    else if (in_string)
      i += c == '\\';
    else
      marks += c == ',' || c == ':' || c == '[' || c == '{' || static_cast<unsigned char>(c) < ' ';
  }
  // Strings are kept in the parser's buffer, which doubles, and the raw token beside it likewise;
  // if the text ends inside one, the error message quotes it, and is put together from copies.
  constexpr size_t kCopies = 11;
  return kBytesPerMark * marks + kCopies * text.size();
}

ApiResult<void> CheckCounts(const Json& body, const FrontLimits& limits) {
  PINION_TRY(CheckCount(body, "logit_bias", "--max-logit-bias", limits.max_logit_bias));
  PINION_TRY(CheckCount(body, "stop", "--max-stop", limits.max_stop));
  PINION_TRY(CheckCount(body, "stop_token_ids", "--max-stop-token-ids", limits.max_stop_token_ids));
  PINION_TRY(CheckCount(body, "allowed_token_ids", "--max-allowed-token-ids",
                        limits.max_allowed_token_ids));
  PINION_TRY(CheckCount(body, "bad_words", "--max-bad-words", limits.max_bad_words));
  for (const char* key : {"stop", "bad_words"}) {
    const Json* texts = body.Find(key);
    if (texts &&
        (IsLong(*texts) ||
         (texts->is_array() && std::any_of(texts->array().begin(), texts->array().end(), IsLong))))
      return Unexpected(
          BadField(key, StrCat("'", key, "' has a string of more than ", kMaxStopBytes, " bytes")));
  }
  return {};
}

// Alternatives of tokens within `most`, or any number (-1); more than the vocabulary means all of
// it.
ApiResult<void> BoundLogprobs(GenerationRequest& request, int most, size_t vocabulary) {
  const auto bound = [&](const char* name, int& count) -> ApiResult<void> {
    if (most >= 0 && count > most)
      return Unexpected(BadField(
          name, StrCat("'", name, "' is ", count, ", want at most ", most, " (--max-logprobs)")));
    count = std::min(count, static_cast<int>(vocabulary));
    return {};
  };
  int& rated = request.params.prompt_logprobs;  // of which an echo's are also logprobs
  rated = std::min(rated, static_cast<int>(vocabulary));
  PINION_TRY(bound("prompt_logprobs", request.prompt_logprobs));
  const bool llama = request.api == Api::kLlama || request.api == Api::kInfill;
  const char* name = request.chat ? "top_logprobs" : llama ? "n_probs" : "logprobs";
  return bound(name, request.params.logprobs);
}

Preparer::Preparer(const ServedModel& model, const Tokenizer& tokenizer, const FrontLimits& limits)
    : model_(model),
      tokenizer_(tokenizer),
      limits_(limits),
      intake_(model, tokenizer),
      pooling_intake_(model, tokenizer) {}

ApiResult<void> Preparer::Read(HttpRequest& request, Api api, Prepared& prepared) const {
  PINION_ASSIGN(Json sent, ReadBody(request, api, prepared.unknown_fields));
  PINION_ASSIGN(TranslatedBody read, TranslateBody(api, std::move(sent)));
  if (auto counted = CheckCounts(read.body, limits_); !counted)
    return Unexpected(AsSent(read, std::move(counted).error()));
  auto asked = IsChat(api) ? ReadChatRequest(read.body, model_.defaults)
                           : ReadCompletionRequest(read.body, model_.defaults);
  if (!asked) return Unexpected(AsSent(read, std::move(asked).error()));
  prepared.request = std::move(*asked);
  prepared.request.grammar_field = NameAsSent(read, prepared.request.grammar_field);
  prepared.request.conversation.moves_instructions =
      api == Api::kMessages || api == Api::kResponses;
  prepared.request.api = api;
  prepared.request.shown = std::move(read.shown);
  prepared.request.line_limit_ns = read.line_limit_ns;
  prepared.request.thought_budget_is_wish = read.thought_budget_is_wish;
  prepared.request.params.penalty_window = read.penalty_window;
  if (read.fill_in) prepared.request.fill_in = std::move(read.fill_in);
  if (api == Api::kResponses) NameAsResponses(prepared.request);
  if (api == Api::kLlama || api == Api::kInfill) FinishLlama(model_.defaults, prepared.request);
  return {};
}

ApiResult<Prepared> Preparer::Generation(HttpRequest& request, Api api, size_t max_model_len,
                                         size_t kv_tokens, const RenderChat& render,
                                         const CheckGrammar& check,
                                         const OnTimeout& on_timeout) const {
  Prepared prepared;
  PINION_TRY(Read(request, api, prepared));
  PINION_TRY(BoundLogprobs(prepared.request, limits_.max_logprobs, model_.vocabulary));
  if (prepared.request.timeout_s) on_timeout(*prepared.request.timeout_s);
  PINION_TRY(CheckPriority(prepared.request.priority));
  PINION_ASSIGN(prepared.prompts,
                intake_.Prepare(prepared.request, max_model_len, render, request.memory));
  PINION_TRY(CheckChoices(prepared, kv_tokens));
  PINION_TRY(CheckBeams(prepared));
  SetEnds(prepared.request);
  PINION_TRY(Check(prepared.request, check));
  const TraceSpan span("prime");
  for (const auto& prompt : prepared.prompts)
    prepared.primed.emplace_back(tokenizer_, prompt, prepared.request.skip_special_tokens,
                                 /*whole=*/!prepared.request.stream);
  TakeEchoes(tokenizer_, prepared);
  prepared.request.prompts.clear();
  PINION_TRY(KeepWhatIsNeeded(request.memory, prepared, "the copies of the prompt"));
  PINION_TRY(
      Reserve(request.memory, PromptLogprobBytes(prepared), "the log-probabilities of the prompt"));
  PINION_TRY(Reserve(request.memory, BeamBytes(prepared), "the beams of the search"));
  prepared.memory = std::move(request.memory);
  return prepared;
}

ApiResult<void> Preparer::CheckBeams(const Prepared& prepared) const {
  if (!prepared.request.beam) return {};
  const auto width = static_cast<size_t>(prepared.request.n);
  if (width > kMaxBeamWidth)
    return Unexpected(BadField("n", StrCat("'n' is ", width, ", the width of a beam search, want ",
                                           "at most ", kMaxBeamWidth)));
  const size_t alternatives = 2 * width;
  const int most = limits_.max_logprobs;
  const bool is_wide = most >= 0 && alternatives > static_cast<size_t>(most);
  if (is_wide || alternatives > model_.vocabulary)
    return Unexpected(
        BadField("n", StrCat("'n' is ", width, ", the width of a beam search that looks at ",
                             alternatives, " alternatives of each token, want at most ",
                             is_wide ? StrCat(most, " (--max-logprobs)")
                                     : StrCat(model_.vocabulary, ", the vocabulary"))));
  size_t tokens = 0;
  for (const auto& prompt : prepared.prompts) tokens += prompt.size();
  if (tokens * width <= kMaxBeamTokens) return {};
  return Unexpected(
      BadField("n", StrCat("'n' is ", width, ", the width of a beam search behind ", tokens,
                           " tokens of prompt, ", tokens * width, " together, want at most ",
                           kMaxBeamTokens, "; ask for fewer answers or send less text at once")));
}

// Says which tokens end the answers of a search.
void Preparer::SetEnds(GenerationRequest& request) const {
  if (!request.beam) return;
  const SamplingParams& params = request.params;
  std::vector<int32_t>& ends = request.beam->ends;
  ends = params.stop_token_ids;
  const std::vector<int32_t>& eos = params.eos_ids.empty() ? model_.eos_ids : params.eos_ids;
  if (!params.ignore_eos) ends.insert(ends.end(), eos.begin(), eos.end());
}

ApiResult<Json> Preparer::ReadBody(HttpRequest& request, Api api, size_t& unknown) const {
  PINION_ASSIGN(Json body, ParseBody(request, api));
  PINION_ASSIGN(unknown, CheckFields(api, body, RulesOf(limits_)));
  TakeWholeReals(api, body);
  if (limits_.ignore_unknown_fields) unknown += DropToolsOfOtherTypes(api, body);
  return body;
}

ApiResult<void> Preparer::CheckPriority(int priority) const {
  if (priority >= limits_.min_priority) return {};
  return Unexpected(
      BadField("priority", StrCat("'priority' is ", priority, ", want at least ",
                                  limits_.min_priority, " (--min-priority); lower goes first")));
}

ApiResult<void> Preparer::CheckChoices(const Prepared& prepared, size_t kv_tokens) const {
  const auto n = static_cast<size_t>(prepared.request.n);
  size_t tokens = 0, longest = 0;
  for (const auto& prompt : prepared.prompts) {
    tokens += prompt.size();
    longest = std::max(longest, prompt.size());
  }
  if (tokens > limits_.max_choice_tokens)
    return Unexpected(
        BadField("", StrCat("the request has ", tokens, " tokens of text, want at most ",
                            limits_.max_choice_tokens, " (--max-choice-tokens)",
                            prepared.prompts.size() > 1 ? "; send several" : "")));
  if (tokens * n > limits_.max_choice_tokens)
    return Unexpected(BadField(
        "n",
        StrCat("'n' is ", n, " and the prompt", prepared.prompts.size() > 1 ? "s have " : " has ",
               tokens, " tokens, ", tokens * n, " together, want at most ",
               limits_.max_choice_tokens, " (--max-choice-tokens)")));
  const size_t needed = longest + static_cast<size_t>(prepared.request.params.max_tokens) - 1;
  const std::string name = prepared.request.max_tokens_name;
  if (kv_tokens > 0 && needed > kv_tokens)
    return Unexpected(ApiError{400,
                               StrCat("a prompt of ", longest, " tokens with ", name, " ",
                                      prepared.request.params.max_tokens, " needs ", needed,
                                      " tokens of KV cache, which holds ", kv_tokens, "; reduce ",
                                      name, ", or start the server with a larger --kv-cache-space"),
                               name, "context_length_exceeded"});
  return {};
}

}  // namespace pinion
