#include "engine/serve/frontend.h"

#include <cstdio>
#include <ctime>
#include <random>
#include <utility>

#include "engine/base/strings.h"
#include "engine/base/trace.h"
#include "engine/base/version.h"

namespace pinion {
namespace {

constexpr const char* kJson = "application/json";

void SendJson(HttpReply& reply, int status, const Json& body) {
  reply.Send(status, kJson, body.Dump());
}

void SendError(HttpReply& reply, const ApiError& error) {
  SendJson(reply, error.status, ToJson(error));
}

ApiResult<Json> ParseBody(const HttpRequest& request) {
  auto body = Json::Parse(request.body);
  if (!body) return Unexpected(ApiError{400, StrCat("the body is ", body.error().message), "", ""});
  return std::move(*body);
}

// "cmpl-" and 32 random hexadecimal digits.
std::string MakeId(bool chat) {
  static std::random_device device;
  static std::mt19937_64 random((uint64_t{device()} << 32) | device());
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(random()),
                static_cast<unsigned long long>(random()));
  return StrCat(chat ? "chatcmpl-" : "cmpl-", digits);
}

// vLLM endpoints that Pinion deliberately leaves out.
bool IsSleepMode(std::string_view path) {
  return path == "/sleep" || path == "/wake_up" || path == "/is_sleeping";
}

Json StatsToJson(const EngineStats& stats) {
  const auto number = [](uint64_t value) { return Json(value); };
  return Json(Json::Object{{"running", number(stats.scheduler.running)},
                           {"waiting", number(stats.scheduler.waiting)},
                           {"preemptions", number(stats.scheduler.preemptions)},
                           {"steps", number(stats.steps)},
                           {"prompt_tokens", number(stats.prompt_tokens)},
                           {"output_tokens", number(stats.output_tokens)},
                           {"blocks_used", number(stats.blocks_used)},
                           {"blocks_total", number(stats.blocks_total)},
                           {"prefix_query_tokens", number(stats.kv.prefix_query_tokens)},
                           {"prefix_hit_tokens", number(stats.kv.prefix_hit_tokens)}});
}

}  // namespace

Frontend::Frontend(ServedModel model, const Tokenizer& tokenizer, Intake::RenderChat render,
                   SendToEngine send)
    : model_(std::move(model)),
      tokenizer_(tokenizer),
      intake_(model_, tokenizer, std::move(render)),
      send_(std::move(send)),
      metrics_(model_.name),
      created_(std::time(nullptr)) {}

const std::map<std::string, Frontend::Endpoint, std::less<>>& Frontend::Endpoints() {
  static const std::map<std::string, Endpoint, std::less<>> kEndpoints = {
      {"/health", {"GET", &Frontend::Health, false}},
      {"/metrics", {"GET", &Frontend::Metrics, false}},
      {"/version", {"GET", &Frontend::Version, false}},
      {"/v1/models", {"GET", &Frontend::Models, true}},
      {"/server_info", {"GET", &Frontend::ServerInfo, true}},
      {"/v1/completions", {"POST", &Frontend::Completions, true}},
      {"/v1/chat/completions", {"POST", &Frontend::Chat, true}},
      {"/tokenize", {"POST", &Frontend::Tokenize, true}},
      {"/detokenize", {"POST", &Frontend::Detokenize, true}},
  };
  return kEndpoints;
}

void Frontend::Handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  const TraceSpan span("request");
  const auto found = Endpoints().find(request.path);
  if (found == Endpoints().end()) {
    if (IsSleepMode(request.path))
      return SendError(*reply, {501,
                                StrCat(request.path,
                                       " is not supported: sleep mode frees GPU memory, but "
                                       "Pinion runs on CPUs; stop the server instead"),
                                "", ""});
    std::vector<std::string> paths;
    for (const auto& [path, endpoint] : Endpoints()) paths.push_back(path);
    return SendError(*reply, {404,
                              StrCat("there is no '", request.path.substr(0, 200),
                                     "'; this server answers ", Join(paths, ", ")),
                              "", ""});
  }
  const Endpoint& endpoint = found->second;
  if (request.method != endpoint.method)
    return SendError(*reply, {405,
                              StrCat(request.method.substr(0, 20), " is not allowed for ",
                                     request.path, ", use ", endpoint.method),
                              "", ""});
  if (endpoint.needs_engine && gone_) return SendError(*reply, *gone_);
  if (endpoint.needs_engine && !ready())
    return SendError(
        *reply,
        {503, "the model is still loading; try again once GET /health returns 200", "", ""});
  (this->*endpoint.route)(request, std::move(reply));
}

void Frontend::Health(const HttpRequest&, Reply reply) {
  reply->Send(ready() ? 200 : 503, "text/plain", "");
}

void Frontend::Metrics(const HttpRequest&, Reply reply) {
  reply->Send(200, "text/plain; version=0.0.4; charset=utf-8", metrics_.Render());
}

void Frontend::Version(const HttpRequest&, Reply reply) {
  SendJson(*reply, 200, Json(Json::Object{{"version", pinion::Version()}}));
}

void Frontend::Models(const HttpRequest&, Reply reply) {
  Json model = Json::MakeObject();
  model.Set("id", model_.name);
  model.Set("object", "model");
  model.Set("created", created_);
  model.Set("owned_by", "pinion");
  model.Set("root", model_.root);
  model.Set("parent", Json());
  model.Set("max_model_len", static_cast<int64_t>(max_model_len_));
  SendJson(*reply, 200, Json(Json::Object{{"object", "list"}, {"data", Json(Json::Array{model})}}));
}

void Frontend::ServerInfo(const HttpRequest&, Reply reply) {
  Json info = server_info_;
  info.Set("stats", StatsToJson(stats_));
  SendJson(*reply, 200, info);
}

void Frontend::Completions(const HttpRequest& request, Reply reply) {
  auto body = ParseBody(request);
  if (!body) return SendError(*reply, body.error());
  Generate(ReadCompletionRequest(*body, model_.defaults), request.arrived_ns, std::move(reply));
}

void Frontend::Chat(const HttpRequest& request, Reply reply) {
  auto body = ParseBody(request);
  if (!body) return SendError(*reply, body.error());
  Generate(ReadChatRequest(*body, model_.defaults), request.arrived_ns, std::move(reply));
}

void Frontend::Tokenize(const HttpRequest& request, Reply reply) {
  const auto answer = [&]() -> ApiResult<Json> {
    PINION_ASSIGN(const Json body, ParseBody(request));
    PINION_ASSIGN(const TokenizeRequest asked, ReadTokenizeRequest(body));
    PINION_ASSIGN(const std::vector<int32_t> ids, intake_.Tokenize(asked));
    Json tokens = Json::MakeObject();
    tokens.Set("count", static_cast<int64_t>(ids.size()));
    tokens.Set("max_model_len", static_cast<int64_t>(max_model_len_));
    tokens.Set("tokens", Json(ids));
    return tokens;
  }();
  if (!answer) return SendError(*reply, answer.error());
  SendJson(*reply, 200, *answer);
}

void Frontend::Detokenize(const HttpRequest& request, Reply reply) {
  const auto answer = [&]() -> ApiResult<Json> {
    PINION_ASSIGN(const Json body, ParseBody(request));
    PINION_ASSIGN(const std::vector<int32_t> ids, ReadDetokenizeRequest(body));
    return Json(Json::Object{{"prompt", tokenizer_.Decode(ids, false)}});
  }();
  if (!answer) return SendError(*reply, answer.error());
  SendJson(*reply, 200, *answer);
}

void Frontend::Generate(ApiResult<GenerationRequest> request, int64_t arrived_ns, Reply reply) {
  if (!request) return SendError(*reply, request.error());
  auto prompts = intake_.Prepare(*request, max_model_len_);
  if (!prompts) return SendError(*reply, prompts.error());
  Start(std::move(*request), std::move(*prompts), arrived_ns, std::move(reply));
}

void Frontend::Start(GenerationRequest request, std::vector<std::vector<int32_t>> prompts,
                     int64_t arrived_ns, Reply reply) {
  ResponseHead head{MakeId(request.chat), std::time(nullptr), model_.name, request.chat};
  auto generation =
      std::make_shared<Generation>(tokenizer_, metrics_, std::move(request), std::move(prompts),
                                   std::move(head), reply, arrived_ns);
  // Weak, because the generation owns the reply: a strong pointer would be a cycle.
  reply->OnGone([this, weak = std::weak_ptr(generation)] {
    if (const auto gone = weak.lock()) {
      gone->CountUnfinished("abort");
      Cancel(gone);
    }
  });
  const size_t per_prompt = generation->choices() / generation->prompts();
  for (size_t i = 0; i < generation->choices(); i += per_prompt) {
    const uint64_t id = next_id_;
    for (size_t k = 0; k < per_prompt; ++k) live_.emplace(next_id_++, std::pair(generation, i + k));
    send_(SubmitMessage{id, static_cast<uint32_t>(per_prompt), 0, generation->ParamsOf(i),
                        generation->PromptOf(i)});
  }
}

void Frontend::Cancel(const std::shared_ptr<Generation>& generation) {
  for (auto it = live_.begin(); it != live_.end();) {
    if (it->second.first != generation) {
      ++it;
      continue;
    }
    send_(AbortMessage{it->first});
    it = live_.erase(it);
  }
}

void Frontend::OnMessage(LinkMessage message) {
  if (const auto* batch = std::get_if<EventsMessage>(&message)) {
    const TraceSpan span("answer", "events", batch->events.size());
    for (const TokenEvent& event : batch->events) OnEvent(event);
    stats_ = batch->stats;
    metrics_.SetEngine(stats_);
  } else if (const auto* refused = std::get_if<RefusedMessage>(&message)) {
    const auto found = live_.find(refused->id);
    if (found == live_.end()) return;
    const auto generation = found->second.first;
    Cancel(generation);
    generation->Fail({400, refused->message, "", ""});
  } else if (const auto* ready = std::get_if<ReadyMessage>(&message)) {
    max_model_len_ = ready->max_model_len;
    auto info = Json::Parse(ready->server_info);
    if (info) server_info_ = std::move(*info);
  }
}

void Frontend::OnEvent(const TokenEvent& event) {
  const auto found = live_.find(event.request);
  if (found == live_.end()) return;  // of a request that was cancelled meanwhile
  const auto [generation, choice] = found->second;
  const auto next = generation->OnEvent(choice, event);
  if (next == Generation::Next::kMore) return;
  live_.erase(event.request);
  if (next == Generation::Next::kAbort) send_(AbortMessage{event.request});
}

void Frontend::OnEngineState(EngineState state, const std::string& public_reason, double) {
  if (state == EngineState::kStarting || state == EngineState::kReady) return gone_.reset();
  gone_ = ApiError{state == EngineState::kFailed ? 500 : 503, public_reason, "", ""};
  if (state != EngineState::kSleeping) FailAll(*gone_);
}

void Frontend::FailAll(const ApiError& error) {
  while (!live_.empty()) {
    const auto generation = live_.begin()->second.first;
    std::erase_if(live_, [&](const auto& entry) { return entry.second.first == generation; });
    generation->Fail(error);
  }
}

}  // namespace pinion
