#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/serve/http.h"
#include "engine/serve/intake.h"
#include "engine/serve/options.h"
#include "engine/serve/pooling_intake.h"
#include "engine/serve/schema.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// A request that the engine can be given, and the start of its answer.
struct Prepared {
  GenerationRequest request;  // without its prompts
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<int32_t>> types;  // one per prompt of a request for vectors or scores
  std::vector<PrimedText> primed;           // one per prompt
  std::vector<std::string> echoes;          // one per prompt, if the answer repeats it
  MemoryShare memory;                       // of all this
  size_t unknown_fields = 0;                // that were ignored
};

// All work on a request whose size its client decides: parsing, checking, rendering, tokenizing and
// priming the decoders. Immutable; any thread.
class Preparer {
 public:
  using RenderChat = Intake::RenderChat;
  // An error of kind kUsage says that the grammar is at fault.
  using CheckGrammar = std::function<Status(const Grammar&)>;
  // Told a request's own `timeout` in seconds, if it has one, as soon as that is read.
  using OnTimeout = std::function<void(double)>;

  // Model and tokenizer outlive the object.
  Preparer(const ServedModel& model, const Tokenizer& tokenizer, const FrontLimits& limits);

  // `kv_tokens`: the tokens that the KV cache holds; 0: unknown. Takes the request's body and
  // memory.
  ApiResult<Prepared> Generation(HttpRequest& request, Api api, size_t max_model_len,
                                 size_t kv_tokens, const RenderChat& render,
                                 const CheckGrammar& check, const OnTimeout& on_timeout) const;
  // Of an endpoint whose answers are vectors or scores.
  ApiResult<Prepared> Pooling(HttpRequest& request, Api api, size_t max_model_len,
                              const RenderChat& render, const OnTimeout& on_timeout) const;
  // The answers' JSON.
  ApiResult<std::string> Tokenize(HttpRequest& request, size_t max_model_len,
                                  const RenderChat& render) const;
  // Of Anthropic's count_tokens.
  ApiResult<std::string> CountTokens(HttpRequest& request, const RenderChat& render) const;
  ApiResult<std::string> Detokenize(HttpRequest& request) const;
  ApiResult<std::string> ApplyTemplate(HttpRequest& request, const RenderChat& render) const;

 private:
  // Its fields have passed CheckFields. `unknown`: how many were ignored.
  ApiResult<Json> ReadBody(HttpRequest& request, Api api, size_t& unknown) const;
  // Sets `request` of a request for text, but not the parts that follow from its prompts.
  ApiResult<void> Read(HttpRequest& request, Api api, Prepared& prepared) const;
  ApiResult<void> CheckPriority(int priority) const;
  ApiResult<void> WriteConversation(GenerationRequest& asked, const RenderChat& render) const;
  ApiResult<void> CheckChoices(const Prepared& prepared, size_t kv_tokens) const;
  ApiResult<void> CheckBeams(const Prepared& prepared) const;
  void SetEnds(GenerationRequest& request) const;

  const ServedModel& model_;
  const Tokenizer& tokenizer_;
  FrontLimits limits_;
  Intake intake_;
  PoolingIntake pooling_intake_;
};

// An upper bound of the bytes that Json::Parse holds at any moment for this text, found without
// parsing it.
size_t ParsedBytes(std::string_view text);

// 400 if a list of the body is longer than the limits allow; looks at lengths only.
ApiResult<void> CheckCounts(const Json& body, const FrontLimits& limits);

}  // namespace pinion
