#include "engine/serve/frontend.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <ctime>
#include <random>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/strings.h"
#include "engine/base/trace.h"
#include "engine/serve/cache_config.h"
#include "engine/serve/fields.h"
#include "engine/serve/http_refusal.h"
#include "engine/serve/incoming.h"

namespace pinion {
namespace {

constexpr const char* kJson = "application/json";

// Bodies above this take a worker tens of milliseconds.
constexpr size_t kHeavyBytes = size_t{256} << 10;

const char* IdPrefix(Api api) {
  switch (api) {
    case Api::kCompletions:
    case Api::kLlama:
    case Api::kInfill:
      return "cmpl-";
    case Api::kChat:
      return "chatcmpl-";
    case Api::kResponses:
      return "resp_";
    case Api::kEmbeddings:
    case Api::kCohereEmbed:
    case Api::kLlamaEmbed:
      return "embd-";
    case Api::kPooling:
      return "pool-";
    case Api::kScore:
      return "score-";
    case Api::kRerank:
      return "rerank-";
    case Api::kClassify:
      return "classify-";
    case Api::kMessages:
      return "msg_";
    case Api::kTokenize:
    case Api::kDetokenize:
    case Api::kApplyTemplate:
    case Api::kCountTokens:
      break;  // their answers have none
  }
  return "";
}

// "cmpl-" and 32 random hexadecimal digits. Event loop only: the generator has no lock.
std::string MakeId(Api api) {
  static std::random_device device;
  static std::mt19937_64 random((uint64_t{device()} << 32) | device());
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(random()),
                static_cast<unsigned long long>(random()));
  return StrCat(IdPrefix(api), digits);
}

// Parameters, as in "application/json; charset=utf-8", change nothing: JSON is UTF-8.
bool IsJson(std::string_view content_type) {
  const std::string_view media = Trim(content_type.substr(0, content_type.find(';')));
  const std::string_view json = kJson;
  return media.size() == json.size() &&
         std::equal(media.begin(), media.end(), json.begin(), [](char a, char b) {
           return std::tolower(static_cast<unsigned char>(a)) == b;
         });
}

}  // namespace

Frontend::Frontend(ServedModel model, const Tokenizer& tokenizer, const FrontLimits& limits,
                   WorkerPool& pool, HttpServer& server, std::shared_ptr<MemoryBudget> memory,
                   SendToEngine send, size_t engines)
    : model_(std::move(model)),
      tokenizer_(tokenizer),
      limits_(limits),
      pool_(pool),
      server_(server),
      memory_(std::move(memory)),
      send_(std::move(send)),
      beams_([this](const LinkMessage& message) { return send_(message); }),
      preparer_(model_, tokenizer, limits),
      metrics_(model_.name, engines),
      engines_(engines),
      admission_(limits),
      created_(std::time(nullptr)) {}

bool Frontend::Handle(HttpRequest& request, Reply& reply) {
  const TraceSpan span("request");
  const Endpoint* endpoint = EndpointAt(request.path);
  if (!endpoint) return false;
  if (request.method != endpoint->facts.method)
    RefuseMethod(*reply, request, endpoint->facts.method);
  else if (const auto refused = Unusable(request, *endpoint))
    Refuse(*reply, request.path, *refused);
  else
    (this->*endpoint->route)(std::move(request), std::move(reply), endpoint->facts);
  return true;
}

std::optional<ApiError> Frontend::Unusable(const HttpRequest& request,
                                           const Endpoint& endpoint) const {
  if (request.method == "POST" && !IsJson(request.headers.Find("Content-Type")))
    return ApiError{
        415, StrCat(request.path, " reads JSON: send the header 'Content-Type: ", kJson, "'"), "",
        ""};
  if (auto unfit = Unfit(request.path, endpoint.needs)) return unfit;
  return endpoint.needs_model ? Unavailable() : std::nullopt;
}

std::optional<ApiError> Frontend::Unavailable() const {
  switch (state_) {
    case EngineState::kStarting:
      return ApiError{503, "the model is still loading; try again once GET /health returns 200", "",
                      ""};
    case EngineState::kSleeping:
    case EngineState::kFailed:
      return ApiError{503, reason_, "", ""};
    case EngineState::kReady:
    case EngineState::kRestarting:  // requests wait for the next engine
      break;
  }
  return {};
}

void Frontend::Refuse(HttpReply& reply, std::string_view path, const ApiError& error) {
  if (error.status == 503) reply.AddHeader("Retry-After", retry_after_);
  reply.Send(error.status, kJson, ErrorBody(path, error));
}

void Frontend::Reject(HttpReply& reply, std::string_view path,
                      const Admission::Rejection& rejection) {
  metrics_.AddRejected(rejection.reason);
  Refuse(reply, path, {503, rejection.message, "", ""});
}

void Frontend::Metrics(HttpRequest, Reply reply, const EndpointFacts& endpoint) {
  metrics_.SetFront({memory_->used(), memory_->rejections(), server_.connections(), pool_.queued(),
                     pending(), ready()});
  reply->Send(200, endpoint.media, metrics_.Render());
}

void Frontend::CountTokens(HttpRequest request, Reply reply, const EndpointFacts&) {
  Prepare(std::move(request), std::move(reply),
          [this](Incoming& incoming, WorkerPool::Worker& worker) {
            return Answer(preparer_.CountTokens(incoming.request, RenderOn(worker)));
          });
}

void Frontend::Tokenize(HttpRequest request, Reply reply, const EndpointFacts&) {
  Prepare(std::move(request), std::move(reply),
          [this, length = max_model_len_](Incoming& incoming, WorkerPool::Worker& worker) {
            return Answer(preparer_.Tokenize(incoming.request, length, RenderOn(worker)));
          });
}

void Frontend::Detokenize(HttpRequest request, Reply reply, const EndpointFacts&) {
  Prepare(std::move(request), std::move(reply), [this](Incoming& incoming, WorkerPool::Worker&) {
    return Answer(preparer_.Detokenize(incoming.request));
  });
}

void Frontend::Prepare(HttpRequest request, Reply reply, Work work) {
  auto ticket = admission_.Arrive(request.client);
  if (!ticket) return Reject(*reply, request.path, ticket.error());
  const bool heavy = request.body.size() > kHeavyBytes;
  const std::string client = request.client;
  auto incoming = std::make_shared<Incoming>(incoming_, limits_.request_timeout_s,
                                             std::move(request), reply, std::move(*ticket));
  // Weak, because the reply must not hold what holds it.
  reply->OnGone([weak = std::weak_ptr(incoming)] {
    if (const auto left = weak.lock()) left->over = true;
  });
  WatchDeadlines();
  pool_.Submit(client, heavy,
               [this, incoming, work = std::move(work)](WorkerPool::Worker& worker) mutable {
                 Then then;
                 if (!incoming->over) then = work(*incoming, worker);
                 server_.Post([incoming = std::move(incoming), then = std::move(then)] {
                   if (then && !incoming->over) then(*incoming);
                 });
               });
}

Frontend::Then Frontend::Answer(ApiResult<std::string> result) {
  auto answer = std::make_shared<ApiResult<std::string>>(std::move(result));
  return [this, answer](Incoming& incoming) {
    if (*answer) return incoming.reply->Send(200, kJson, std::move(**answer));
    if (answer->error().code == kUnknownField) metrics_.AddUnknownFields("refused", 1);
    Refuse(*incoming.reply, incoming.request.path, answer->error());
  };
}

void Frontend::OnPrepared(Incoming& incoming, ApiResult<Prepared> prepared) {
  const int64_t now = NowNs(), arrived = incoming.request.arrived_ns;
  metrics_.AddPrepared(static_cast<double>(now - arrived) * 1e-9);
  if (incoming.deadline_ns() <= now)
    return Refuse(*incoming.reply, incoming.request.path, Overdue(incoming.limit_s));
  if (!prepared) {
    if (prepared.error().code == kUnknownField) metrics_.AddUnknownFields("refused", 1);
    return Refuse(*incoming.reply, incoming.request.path, prepared.error());
  }
  if (prepared->unknown_fields > 0) metrics_.AddUnknownFields("ignored", prepared->unknown_fields);
  // The engine may have gone to sleep meanwhile.
  if (const auto unavailable = Unavailable())
    return Refuse(*incoming.reply, incoming.request.path, *unavailable);
  const size_t choices = prepared->prompts.size() * static_cast<size_t>(prepared->request.n);
  size_t tokens = 0;
  for (const auto& prompt : prepared->prompts)
    tokens += prompt.size() * static_cast<size_t>(prepared->request.n);
  if (auto admitted = admission_.Admit(incoming.ticket, choices, tokens); !admitted)
    return Reject(*incoming.reply, incoming.request.path, admitted.error());
  const double limit_s = incoming.limit_s;

  ResponseHead head{MakeId(prepared->request.api), std::time(nullptr), model_.name,
                    prepared->request.chat};
  auto generation = std::make_shared<Generation>(
      tokenizer_, metrics_, std::move(*prepared), std::move(head),
      Generation::Origin{incoming.request.client, arrived, limit_s, incoming.reply},
      std::move(incoming.ticket));
  incoming.reply->OnGone([this, weak = std::weak_ptr(generation)] {
    const auto gone = weak.lock();
    if (gone && Cancel(gone)) gone->CountUnfinished("abort");
  });
  Request request{generation, deadlines_.emplace(incoming.deadline_ns(), generation)};
  WatchDeadlines();
  if (ready())
    Submit(std::move(request));
  else
    pending_.push_back(std::move(request));
}

void Frontend::Submit(Request request) {
  const auto generation = request.generation;
  const uint64_t first = next_id_;
  next_id_ += generation->choices();
  live_.emplace(first, std::move(request));
  size_t prompt = 0;
  for (SubmitMessage& message : generation->TakeSubmits(first)) {
    const BeamRules* rules = generation->beam_rules();
    const size_t engine = rules ? beams_.Begin(std::move(message), *rules) : send_(message);
    generation->SetEngine(prompt++, engine);
  }
  generation->Begin();
}

std::map<uint64_t, Frontend::Request>::iterator Frontend::Find(uint64_t id) {
  auto found = live_.upper_bound(id);
  if (found == live_.begin()) return live_.end();
  --found;
  return id - found->first < found->second.generation->choices() ? found : live_.end();
}

void Frontend::OnMessage(LinkMessage message) {
  if (const auto* batch = std::get_if<EventsMessage>(&message)) {
    const TraceSpan span("answer", "events", batch->events.size());
    for (const TokenEvent& event : batch->events) {
      if (BeamRounds::Owns(event.request))
        OnSearched(beams_.OnEvent(event));
      else
        OnEvent(event);
    }
    running_ = batch->stats.scheduler.running;
  } else if (const auto* refused = std::get_if<RefusedMessage>(&message)) {
    const auto found = Find(beams_.ChoiceOf(refused->id));
    if (found == live_.end()) return;
    const auto generation = found->second.generation;
    Cancel(generation);
    generation->Fail({400, refused->message, "", ""});
  } else if (const auto* ready = std::get_if<ReadyMessage>(&message)) {
    max_model_len_ = ready->max_model_len;
    slots_ = ready->max_num_seqs;
    metrics_.SetSleepLevel(0);
    metrics_.SetModel(max_model_len_, CacheConfigsOf(ready->server_info, engines_, max_model_len_));
    kv_tokens_ = ready->kv_tokens;
    OnEngineState(EngineState::kReady, "");
  }
}

void Frontend::OnEvent(const TokenEvent& event) {
  const auto found = Find(event.request);
  if (found == live_.end()) return;  // of a request that was cancelled meanwhile
  // A copy: an answer that the client cannot take may end the request from within.
  const auto generation = found->second.generation;
  switch (generation->OnEvent(static_cast<size_t>(event.request - found->first), event)) {
    case Generation::Next::kMore:
      break;
    case Generation::Next::kAbort:
      send_(AbortMessage{event.request});
      break;
    case Generation::Next::kFail:
      Cancel(generation);
      Fail(*generation, generation->Failure());
      return;
  }
  if (generation->ended()) Complete(generation);
}

void Frontend::OnSearched(BeamEvents events) {
  constexpr size_t kAtOnce = 256;  // about a millisecond's; other clients' events come in between
  for (size_t i = 0; i < kAtOnce; ++i) {
    const auto event = events.Next();
    if (!event) return;
    OnEvent(*event);
  }
  server_.Post([this, rest = std::move(events)]() mutable { OnSearched(std::move(rest)); });
}

void Frontend::Complete(std::shared_ptr<Generation> generation) {
  const auto found = live_.find(generation->first_id());
  if (found == live_.end()) return;
  Request request = std::move(found->second);
  live_.erase(found);
  if (generation->needs_answer() && generation->answer_is_large()) return Write(std::move(request));
  deadlines_.erase(request.deadline);
  if (generation->needs_answer()) generation->Send(generation->Answer());
}

void Frontend::Write(Request request) {
  auto generation = request.generation;
  writing_.emplace(generation->first_id(), std::move(request));
  const std::string client = generation->client();
  // The generation moves on, so that it ends on the event loop's thread.
  pool_.Submit(client, /*heavy=*/true,
               [this, generation = std::move(generation)](WorkerPool::Worker&) mutable {
                 auto answer = std::make_shared<std::string>(generation->Answer());
                 server_.Post([this, generation = std::move(generation), answer] {
                   // Otherwise the client has left, or its time was over.
                   if (Cancel(generation)) generation->Send(std::move(*answer));
                 });
               });
}

size_t Frontend::live() const {
  size_t choices = 0;
  for (const auto& [id, request] : live_) choices += request.generation->unfinished();
  return choices;
}

size_t Frontend::pending() const {
  size_t choices = 0;
  for (const Request& request : pending_) choices += request.generation->choices();
  return choices;
}

}  // namespace pinion
