// Which endpoints there are, and which of them a model can answer.

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/strings.h"
#include "engine/serve/frontend.h"
#include "engine/serve/invocation.h"

namespace pinion {
namespace {

constexpr const char* kPrometheus = "text/plain; version=0.0.4; charset=utf-8";
constexpr const char* kOneModel = "/v1/models/{model}";
constexpr std::string_view kInvocations = "/invocations";

// The endpoints to use instead, as a part of an error. labels: the client asked for those.
const char* Instead(const PoolingFacts& facts, bool labels) {
  switch (facts.task) {
    case ModelTask::kGenerate:
      if (labels)
        return "it generates text: use /v1/completions or /v1/chat/completions, or serve a "
               "classifier";
      return "it generates text: use /v1/completions or /v1/chat/completions, or start the server "
             "with --task embed or --task score";
    case ModelTask::kEmbed:
      return "it embeds texts: use /v1/embeddings, /pooling, /score or /rerank";
    case ModelTask::kScore:
      return facts.scores_pairs() ? "it scores pairs of texts: use /score, /rerank or /pooling"
                                  : "it classifies texts: use /classify or /pooling";
  }
  return "";
}

}  // namespace

const std::vector<Frontend::Endpoint>& Frontend::Endpoints() {
  using enum Api;
  using F = Frontend;
  constexpr const char* kVectorsOfLlama = "Vectors of texts, in llama-server's form";
  constexpr const char* kScoring = "How well documents match a query";
  constexpr const char* kRanking = "Documents in the order in which they match a query";
  static const std::vector<Endpoint> kEndpoints = {
      {{"/metrics", "GET", "Metrics for Prometheus", {}, kPrometheus}, &F::Metrics, {}, false},
      {{"/load", "GET", "How many requests wait or run"}, &F::Load, {}, false},
      {{"/tokenizer_info", "GET", "The tokenizer's special tokens and the chat template"},
       &F::TokenizerInfo},
      {{"/props", "GET", "The model and its defaults, in llama-server's form"}, &F::Props},
      {{"/slots",
        "GET",
        "The requests that run, in llama-server's form",
        {},
        "application/json",
        QueryParameter{"fail_on_no_slot", R"({"type":"integer","enum":[0,1]})"}},
       &F::Slots},
      {{"/v1/models", "GET", "The names of the model"}, &F::Models},
      {{"/models", "GET", "The names of the model"}, &F::Models},
      {{kOneModel, "GET", "One name of the model"}, &F::Models},
      {{"/v1/completions", "POST", "Text that follows a text", kCompletions},
       &F::Generate,
       Needs::kText},
      {{"/v1/chat/completions", "POST", "The next turn of a conversation", kChat},
       &F::Generate,
       Needs::kText},
      {{"/completion", "POST", "Text that follows a text, in llama-server's form", kLlama},
       &F::Generate,
       Needs::kText},
      {{"/completions", "POST", "Text that follows a text, in llama-server's form", kLlama},
       &F::Generate,
       Needs::kText},
      {{"/infill", "POST", "Text that fills a gap, in llama-server's form", kInfill},
       &F::Generate,
       Needs::kText},
      {{"/v1/responses", "POST", "The next turn of a conversation, as OpenAI's Responses",
        kResponses},
       &F::Generate,
       Needs::kText},
      {{"/v1/messages", "POST", "The next turn of a conversation, as Anthropic's Messages",
        kMessages},
       &F::Generate,
       Needs::kText},
      {{"/v1/messages/count_tokens", "POST", "How many tokens a Message's prompt has",
        kCountTokens},
       &F::CountTokens},
      {{"/v1/embeddings", "POST", "Vectors of texts", kEmbeddings}, &F::Pool, Needs::kEmbeddings},
      {{"/v2/embed", "POST", "Vectors of texts, in Cohere's form", kCohereEmbed},
       &F::Pool,
       Needs::kEmbeddings},
      {{"/embedding", "POST", kVectorsOfLlama, kLlamaEmbed}, &F::Pool, Needs::kEmbeddings},
      {{"/embeddings", "POST", kVectorsOfLlama, kLlamaEmbed}, &F::Pool, Needs::kEmbeddings},
      {{"/pooling", "POST", "Vectors or scores of texts", kPooling}, &F::Pool, Needs::kVectors},
      {{"/score", "POST", kScoring, kScore}, &F::Pool, Needs::kScores},
      {{"/v1/score", "POST", kScoring, kScore}, &F::Pool, Needs::kScores},
      {{"/rerank", "POST", kRanking, kRerank}, &F::Pool, Needs::kScores},
      {{"/reranking", "POST", kRanking, kRerank}, &F::Pool, Needs::kScores},
      {{"/v1/rerank", "POST", kRanking, kRerank}, &F::Pool, Needs::kScores},
      {{"/v1/reranking", "POST", kRanking, kRerank}, &F::Pool, Needs::kScores},
      {{"/v2/rerank", "POST", kRanking, kRerank}, &F::Pool, Needs::kScores},
      {{"/classify", "POST", "The labels of texts", kClassify}, &F::Pool, Needs::kLabels},
      {{kInvocations, "POST", "The answer to the body of another endpoint, for SageMaker"},
       &F::Invoke},
      {{"/apply-template", "POST", "The prompt that a conversation becomes", kApplyTemplate},
       &F::ApplyTemplate},
      {{"/tokenize", "POST", "The tokens of a text or a conversation", kTokenize}, &F::Tokenize},
      {{"/detokenize", "POST", "The text of tokens", kDetokenize}, &F::Detokenize},
  };
  return kEndpoints;
}

const Frontend::Endpoint* Frontend::EndpointAt(std::string_view path) {
  if (IsModelPath(path)) path = kOneModel;
  for (const Endpoint& endpoint : Endpoints())
    if (endpoint.facts.path == path) return &endpoint;
  return nullptr;
}

bool Frontend::Knows(std::string_view path) {
  return !IsModelPath(path) && EndpointAt(path);  // names of models are their clients' own
}

std::vector<EndpointFacts> Frontend::Offered() const {
  std::vector<EndpointFacts> offered;
  for (const Endpoint& endpoint : Endpoints())
    if (!Unfit(endpoint.facts.path, endpoint.needs)) offered.push_back(endpoint.facts);
  for (EndpointFacts& endpoint : offered)
    if (endpoint.path == kInvocations) endpoint.bodies = InvokedApis(model_.pooling);
  return offered;
}

std::optional<ApiError> Frontend::Unfit(std::string_view path, Needs needs) const {
  const PoolingFacts& facts = model_.pooling;
  const bool generates = facts.task == ModelTask::kGenerate;
  const bool embeds = facts.task == ModelTask::kEmbed;
  bool fits = true;
  if (needs == Needs::kText) fits = generates;
  if (needs == Needs::kVectors) fits = !generates;
  if (needs == Needs::kEmbeddings) fits = embeds;
  if (needs == Needs::kScores) fits = embeds || facts.scores_pairs();
  if (needs == Needs::kLabels) fits = !facts.labels.empty();
  if (fits) return {};
  return ApiError{
      400,
      StrCat("the model does not answer ", path, "; ", Instead(facts, needs == Needs::kLabels)), "",
      ""};
}

}  // namespace pinion
