// The front end's endpoints whose answers are vectors or scores, and which of all endpoints a model
// can answer.

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"
#include "engine/serve/frontend.h"
#include "engine/serve/incoming.h"

namespace pinion {
namespace {

// What clients can ask a model for instead. labels: they asked for those.
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

void Frontend::Pool(HttpRequest request, Reply reply, const EndpointFacts& endpoint) {
  Prepare(std::move(request), std::move(reply),
          [this, api = *endpoint.body, length = max_model_len_](
              Incoming& incoming, WorkerPool::Worker& worker) -> Then {
            const auto shorten = [&incoming](double timeout_s) {
              incoming.limit_s = std::min(incoming.limit_s.load(), timeout_s);
            };
            auto prepared = std::make_shared<ApiResult<Prepared>>(
                preparer_.Pooling(incoming.request, api, length, RenderOn(worker), shorten));
            return [this, prepared](Incoming& back) { OnPrepared(back, std::move(*prepared)); };
          });
}

}  // namespace pinion
