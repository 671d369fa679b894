#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/run/task.h"
#include "engine/sample/params.h"
#include "engine/serve/answer_parser.h"
#include "engine/serve/beam_search.h"
#include "engine/serve/fill_in.h"
#include "engine/serve/vector_form.h"
#include "engine/text/grammar.h"

namespace pinion {

// The reason a request was refused, in the terms of the OpenAI API.
struct ApiError {
  int status = 400;
  std::string message;  // one sentence
  std::string param;    // the field at fault; empty: none
  std::string code;     // "model_not_found", "context_length_exceeded"; empty: none
};
template <typename T>
using ApiResult = tl::expected<T, ApiError>;
// Lets PINION_TRY and PINION_ASSIGN pass API errors on.
inline tl::unexpected<ApiError> Unexpected(ApiError error) {
  return tl::unexpected<ApiError>(std::move(error));
}

// {"error":{"message","type","param","code"}}
Json ToJson(const ApiError& error);

// The API's defaults as changed by a checkpoint's generation_config.json, as in vLLM.
struct ApiDefaults {
  SamplingParams params;              // temperature 1 unless the file says otherwise
  std::optional<int> max_new_tokens;  // also the limit for every request
};
// `overrides`: members that count more than those in it.
Result<ApiDefaults> ReadApiDefaults(const std::optional<Json>& generation_config,
                                    const Json::Object& overrides = {});
// The members that it reads.
const std::vector<std::string>& ApiDefaultNames();

using TextOrTokens = std::variant<std::string, std::vector<int32_t>>;

// A request's conversation, ready for the chat template: contents are strings or lists of parts of
// type text, arguments of earlier tool calls are objects.
struct Conversation {
  Json messages, tools, template_kwargs;  // tools and kwargs may be null
  std::string own_template = {};          // in place of the model's; empty: none
  bool add_generation_prompt = true, continue_final_message = false;
  bool moves_instructions = false;  // as in ChatRequest
};

// The API whose form a request and its answer have: OpenAI's completions, chat completions and
// Responses, Anthropic's Messages, llama-server's /completion and /infill; those whose answers are
// vectors or scores, of which one is Cohere's; and those that show a text's tokens or a
// conversation's prompt. Those for text are, inside, completions (the first and llama-server's) or
// chats.
enum class Api {
  kCompletions,
  kChat,
  kMessages,
  kResponses,
  kLlama,
  kInfill,
  kEmbeddings,
  kCohereEmbed,
  kLlamaEmbed,  // llama-server's /embedding
  kPooling,
  kScore,
  kRerank,
  kClassify,
  kTokenize,
  kDetokenize,
  kApplyTemplate,
  kCountTokens  // of a Message
};
inline bool IsChat(Api api) {
  return api == Api::kChat || api == Api::kMessages || api == Api::kResponses;
}

// The wishes of a request for vectors or scores, beside its texts.
struct PoolingWishes {
  const PoolingFacts* facts = nullptr;          // of the model; null: the request is for text
  std::vector<std::string> queries, documents;  // of scores: one query for all, or one for each
  const char* query_field = "query";            // as the client calls them
  const char* document_field = "documents";     // likewise
  size_t dimensions = 0;                        // of an embedding; 0: all
  std::optional<bool> normalises;               // an embedding; unset: as the model does
  VectorForm form = {};                         // of vectors
  std::vector<std::string> types;               // Cohere's forms of vectors
  std::string input_type;                       // the prompt before each text; "": none
  std::optional<size_t> text_tokens;            // longer texts are refused
  bool activates = true;                        // scores are probabilities, or as `normalises`
  std::string task;                             // what the client takes the model for; "": any
  size_t top_n = 0;                             // of a ranking; 0: all
  size_t query_tokens = 0;                      // of a query, its first ones; 0: all
  size_t document_tokens = 0;                   // the same of a document
  std::string instruction;                      // what counts as a match; "": the usual
  bool return_documents = true;                 // in a ranking
};

// A request for text, whichever API it came by.
struct GenerationRequest {
  Api api = Api::kCompletions;
  bool chat = false;                  // it has a conversation
  std::string model;                  // empty if the client named none
  std::vector<TextOrTokens> prompts;  // completions
  std::optional<FillIn> fill_in;      // the prompts are what precedes a gap
  Conversation conversation;          // chat
  // The rules by its client's tools and wishes; formats and prompt are set once they are known.
  OutputRules output;
  bool add_special_tokens = true;
  SamplingParams params;
  std::optional<Grammar> grammar;  // of its answers
  std::string grammar_field;       // the client's, that asked for it
  bool max_tokens_given = false;
  const char* max_tokens_name = "max_tokens";  // the client's
  std::optional<int> thought_budget;           // tokens of reasoning; nothing: any number
  // A model whose form of reasoning is unknown may ignore the budget.
  bool thought_budget_is_wish = false;
  std::vector<int> thought_in_prompts;  // ThoughtRules::in_prompt, if params have rules
  int n = 1;
  std::optional<BeamRules> beam;  // the choices are the best of a search of width n
  bool echo = false;
  std::string echoed;  // by a chat: its last message, which the answer goes on with or follows
  int prompt_logprobs = -1;  // -1: none; those that `echo` shows are in params alone
  bool prompt_only = false;  // max_tokens 0: nothing is generated
  bool skip_special_tokens = true;
  bool return_token_ids = false;  // of prompt and output, beside the text
  bool tokens_as_ids = false;     // log-probabilities name tokens as "token_id:7"
  std::string cache_salt;         // empty: none; see Request
  std::vector<std::string> bad_words;
  std::optional<int> truncate_to;  // prompt tokens to keep; -1: as many as fit the model
  bool truncate_left = true;       // keep the last ones
  bool stream = false, include_usage = false;
  bool usage_in_parts = false;      // in every event of a stream
  int priority = 0;                 // lower goes first, as in vLLM
  std::optional<double> timeout_s;  // for the whole answer
  // A choice ends with the first line that it completes later than this after its first token; 0:
  // with none. For clients that complete a text as it is typed, and rather have less of it soon.
  int64_t line_limit_ns = 0;
  PoolingWishes pooling;
  std::string shown;  // what a Response repeats of it: members of a JSON object, without its braces
};

// The body of a request for text in the form of completions or chats, whichever API it came by.
struct TranslatedBody {
  Json body;
  // Members of a GenerationRequest.
  std::string shown = {};
  std::optional<FillIn> fill_in = {};
  int64_t line_limit_ns = 0;
  bool thought_budget_is_wish = false;
  std::optional<size_t> penalty_window = {};  // of SamplingParams
  // Fields of `body` that its client sent under another name, with that: errors are about the
  // latter.
  std::vector<std::pair<std::string, std::string>> renamed = {};
};

// All of these read bodies whose fields CheckFields has let pass.
ApiResult<GenerationRequest> ReadCompletionRequest(const Json& body, const ApiDefaults& defaults);
ApiResult<GenerationRequest> ReadChatRequest(const Json& body, const ApiDefaults& defaults);

// The body of POST /tokenize: a text or a conversation.
struct TokenizeRequest {
  std::string model;
  std::optional<std::string> prompt;
  Conversation conversation;
  bool add_special_tokens = true;
  bool token_texts = false;  // as the vocabulary writes them, beside the ids
  bool pieces = false;       // llama-server's: with each id what it stands for
};
ApiResult<TokenizeRequest> ReadTokenizeRequest(const Json& body);
// The body of POST /detokenize.
struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
};
ApiResult<DetokenizeRequest> ReadDetokenizeRequest(const Json& body);

// The most choices one request may ask for: prompts x n.
inline constexpr size_t kMaxChoices = 2048;
// The widest beam search: one of width w has 2 * w * w continuations to choose from at each step.
inline constexpr size_t kMaxBeamWidth = 64;
// n x prompt tokens of a beam search, each of whose steps writes the prompts of all of its beams to
// the engine: a MiB.
inline constexpr size_t kMaxBeamTokens = size_t{256} << 10;

}  // namespace pinion
