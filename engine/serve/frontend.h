#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/serve/admission.h"
#include "engine/serve/beam_rounds.h"
#include "engine/serve/engine_state.h"
#include "engine/serve/generation.h"
#include "engine/serve/http.h"
#include "engine/serve/link.h"
#include "engine/serve/metrics.h"
#include "engine/serve/openapi.h"
#include "engine/serve/options.h"
#include "engine/serve/prepare.h"
#include "engine/serve/schema.h"
#include "engine/serve/worker_pool.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// The API behind the HTTP server: routes requests, admits them, has the pool's workers prepare
// them, hands prompts to the engine through the link and gives its events to the requests they
// belong to. Nothing here takes a time that a client decides. Knows neither sockets nor processes.
// Thread rule: the event loop's thread.
class Frontend {
 public:
  // Returns the number of the engine that the message went to; 0 if it went to all or none.
  using SendToEngine = std::function<size_t(const LinkMessage&)>;

  // Everything referred to outlives the object; the server's Run ends before it does. `memory`:
  // what the server takes requests' memory from. `engines`: how many `send` tells apart.
  Frontend(ServedModel model, const Tokenizer& tokenizer, const FrontLimits& limits,
           WorkerPool& pool, HttpServer& server, std::shared_ptr<MemoryBudget> memory,
           SendToEngine send, size_t engines = 1);
  Frontend(const Frontend&) = delete;  // preparer_ refers to model_
  Frontend& operator=(const Frontend&) = delete;

  // False: the path belongs to somebody else.
  bool Handle(HttpRequest& request, std::shared_ptr<HttpReply>& reply);
  // Whether `path` is one of its own.
  static bool Knows(std::string_view path);
  // The endpoints that the model can answer.
  std::vector<EndpointFacts> Offered() const;
  FieldRules field_rules() const { return RulesOf(limits_); }
  // One message from the engines other than FailedMessage. Statistics, which are their sum, are for
  // /slots alone: metrics() takes those of each engine.
  void OnMessage(LinkMessage message);

  // kReady: requests that waited are sent. kRestarting: requests in flight end with `public_reason`
  // and status 503; new ones wait for the engine. kSleeping: those in flight go on, those that wait
  // end, and new ones are refused. kFailed: all end.
  void OnEngineState(EngineState state, const std::string& public_reason, double retry_after_s = 5);
  // Ends with 503 and `public_reason` the requests that one of these prompts, by their first
  // choices, belongs to: the engine that had them is gone, but there are others.
  void OnLost(const std::vector<uint64_t>& prompts, const std::string& public_reason);
  // Ends every request that is in flight or waits for the engine with `error`.
  void FailAll(const ApiError& error);

  bool ready() const { return state_ == EngineState::kReady; }
  // Choices that the engine has, and that wait for it.
  size_t live() const;
  size_t pending() const;
  ServeMetrics& metrics() { return metrics_; }

 private:
  using Reply = std::shared_ptr<HttpReply>;
  using Route = void (Frontend::*)(HttpRequest, Reply, const EndpointFacts&);
  // The purpose that the model must have been made for.
  enum class Needs { kAnything, kText, kVectors, kEmbeddings, kScores, kLabels };
  struct Endpoint {
    EndpointFacts facts;
    Route route;
    Needs needs = Needs::kAnything;
    bool needs_model = true;  // loaded
  };
  static const std::vector<Endpoint>& Endpoints();
  static const Endpoint* EndpointAt(std::string_view path);

  // Requests that the workers have prepared, by the time at which they must have been answered.
  using Deadlines = std::multimap<int64_t, std::shared_ptr<Generation>>;
  // A request that the engine works on, or that waits for it.
  struct Request {
    std::shared_ptr<Generation> generation;
    Deadlines::iterator deadline;
  };
  struct Incoming;

  static bool IsModelPath(std::string_view path);  // /v1/models/NAME
  void Models(HttpRequest request, Reply reply, const EndpointFacts&);
  void Load(HttpRequest, Reply reply, const EndpointFacts&);
  void TokenizerInfo(HttpRequest, Reply reply, const EndpointFacts&);
  void Props(HttpRequest, Reply reply, const EndpointFacts&);
  void Slots(HttpRequest request, Reply reply, const EndpointFacts&);
  void Metrics(HttpRequest, Reply reply, const EndpointFacts& endpoint);
  // Those for text, and those for vectors or scores, by the API of the endpoint.
  void Generate(HttpRequest request, Reply reply, const EndpointFacts& endpoint);
  void Pool(HttpRequest request, Reply reply, const EndpointFacts& endpoint);
  void Invoke(HttpRequest request, Reply reply, const EndpointFacts&);
  void ApplyTemplate(HttpRequest request, Reply reply, const EndpointFacts&);
  void CountTokens(HttpRequest request, Reply reply, const EndpointFacts&);
  void Tokenize(HttpRequest request, Reply reply, const EndpointFacts&);
  void Detokenize(HttpRequest request, Reply reply, const EndpointFacts&);

  // Why `request` cannot be answered by the endpoint of its path.
  std::optional<ApiError> Unusable(const HttpRequest& request, const Endpoint& endpoint) const;
  std::optional<ApiError> Unavailable() const;
  // `path`: the request's, whose API has a form of errors.
  void Refuse(HttpReply& reply, std::string_view path, const ApiError& error);
  void Reject(HttpReply& reply, std::string_view path, const Admission::Rejection& rejection);
  // The work of a worker on a request, and that of the event loop on its result.
  using Then = std::function<void(Incoming&)>;
  using Work = std::function<Then(Incoming&, WorkerPool::Worker&)>;
  void Prepare(HttpRequest request, Reply reply, Work work);
  Then Answer(ApiResult<std::string> result);
  // Of the engine that will have the request.
  struct EngineLimits {
    size_t max_model_len, kv_tokens;
  };
  EngineLimits engine_limits() const { return {max_model_len_, kv_tokens_}; }
  // On a worker: a request for text, or one for vectors or scores.
  Then PrepareText(Incoming& incoming, WorkerPool::Worker& worker, Api api, EngineLimits limits);
  Then PrepareTexts(Incoming& incoming, WorkerPool::Worker& worker, Api api, EngineLimits limits);
  // Why the model cannot answer at `path`.
  std::optional<ApiError> Unfit(std::string_view path, Needs needs) const;
  void OnPrepared(Incoming& incoming, ApiResult<Prepared> prepared);
  void Submit(Request request);
  // The request that `id` is a choice of; end() if none.
  std::map<uint64_t, Request>::iterator Find(uint64_t id);
  void OnEvent(const TokenEvent& event);
  // Events of a beam search: some now, the others later, because the client has decided how many
  // there are.
  void OnSearched(BeamEvents events);
  // All choices have ended.
  void Complete(std::shared_ptr<Generation> generation);
  // Has a worker write the whole answer.
  void Write(Request request);
  // Forgets a request and tells the engine to stop its choices; false if it had ended already.
  bool Cancel(const std::shared_ptr<Generation>& generation);
  void Fail(Generation& generation, const ApiError& error);
  void FailLive(const ApiError& error);
  void FailPending(const ApiError& error);
  void WatchDeadlines();
  void EndOverdue();
  ApiError Overdue(double limit_s);

  ServedModel model_;
  const Tokenizer& tokenizer_;
  FrontLimits limits_;
  WorkerPool& pool_;
  HttpServer& server_;
  std::shared_ptr<MemoryBudget> memory_;
  SendToEngine send_;
  BeamRounds beams_;
  Preparer preparer_;
  ServeMetrics metrics_;
  const size_t engines_;
  Admission admission_;
  EngineState state_ = EngineState::kStarting;
  std::string reason_;  // why the engine is not ready
  std::string retry_after_ = "5";
  size_t max_model_len_ = 0, kv_tokens_ = 0;
  size_t slots_ = 0, running_ = 0;  // sequences that the engine may run, and does
  int64_t created_;
  uint64_t next_id_ = 1;                 // never repeats, whichever engine process an id goes to
  std::map<uint64_t, Request> live_;     // by the first id of a request's choices
  std::list<Request> pending_;           // in their order
  std::set<Incoming*> incoming_;         // that workers prepare; each knows its deadline
  std::map<uint64_t, Request> writing_;  // of which workers write the answers, as live_
  Deadlines deadlines_;
  bool watching_deadlines_ = false;
};

}  // namespace pinion
