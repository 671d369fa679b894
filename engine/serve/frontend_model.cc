// The front end's endpoints that the model computes the answers of: texts, vectors and scores.

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "engine/base/strings.h"
#include "engine/serve/frontend.h"
#include "engine/serve/incoming.h"
#include "engine/serve/invocation.h"

namespace pinion {
namespace {

Preparer::CheckGrammar CheckOn(WorkerPool::Worker& worker) {
  return [&worker](const Grammar& grammar) { return worker.Check(grammar); };
}

Preparer::OnTimeout Shorten(std::atomic<double>& limit_s) {
  return [&limit_s](double timeout_s) { limit_s = std::min(limit_s.load(), timeout_s); };
}

}  // namespace

Frontend::Then Frontend::PrepareText(Incoming& incoming, WorkerPool::Worker& worker, Api api,
                                     EngineLimits limits) {
  auto prepared = std::make_shared<ApiResult<Prepared>>(
      preparer_.Generation(incoming.request, api, limits.max_model_len, limits.kv_tokens,
                           RenderOn(worker), CheckOn(worker), Shorten(incoming.limit_s)));
  return [this, prepared](Incoming& back) { OnPrepared(back, std::move(*prepared)); };
}

Frontend::Then Frontend::PrepareTexts(Incoming& incoming, WorkerPool::Worker& worker, Api api,
                                      EngineLimits limits) {
  auto prepared = std::make_shared<ApiResult<Prepared>>(preparer_.Pooling(
      incoming.request, api, limits.max_model_len, RenderOn(worker), Shorten(incoming.limit_s)));
  return [this, prepared](Incoming& back) { OnPrepared(back, std::move(*prepared)); };
}

void Frontend::Generate(HttpRequest request, Reply reply, const EndpointFacts& endpoint) {
  Prepare(std::move(request), std::move(reply),
          [this, api = *endpoint.body, limits = engine_limits()](Incoming& incoming,
                                                                 WorkerPool::Worker& worker) {
            return PrepareText(incoming, worker, api, limits);
          });
}

void Frontend::Pool(HttpRequest request, Reply reply, const EndpointFacts& endpoint) {
  Prepare(std::move(request), std::move(reply),
          [this, api = *endpoint.body, limits = engine_limits()](Incoming& incoming,
                                                                 WorkerPool::Worker& worker) {
            return PrepareTexts(incoming, worker, api, limits);
          });
}

void Frontend::Invoke(HttpRequest request, Reply reply, const EndpointFacts&) {
  Prepare(std::move(request), std::move(reply),
          [this, limits = engine_limits()](Incoming& incoming, WorkerPool::Worker& worker) -> Then {
            const PoolingFacts& facts = model_.pooling;
            const auto api = InvokedApi(incoming.request.body, facts);
            if (!api)
              return Answer(Unexpected(
                  ApiError{400,
                           StrCat("/invocations cannot tell what the body asks for; want ",
                                  InvokedFields(facts), ", which the model answers"),
                           "", ""}));
            if (facts.task == ModelTask::kGenerate)
              return PrepareText(incoming, worker, *api, limits);
            return PrepareTexts(incoming, worker, *api, limits);
          });
}

}  // namespace pinion
