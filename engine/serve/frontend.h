#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/serve/engine_state.h"
#include "engine/serve/generation.h"
#include "engine/serve/http.h"
#include "engine/serve/intake.h"
#include "engine/serve/link.h"
#include "engine/serve/metrics.h"
#include "engine/serve/schema.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// The API behind the HTTP server: routes requests, hands prompts to the engine through the link and
// gives its events to the requests they belong to. Knows neither sockets nor processes.
// Thread rule: one thread.
class Frontend {
 public:
  using SendToEngine = std::function<void(const LinkMessage&)>;

  // The tokenizer outlives the object.
  Frontend(ServedModel model, const Tokenizer& tokenizer, Intake::RenderChat render,
           SendToEngine send);
  Frontend(const Frontend&) = delete;  // intake_ refers to model_
  Frontend& operator=(const Frontend&) = delete;

  void Handle(HttpRequest request, std::shared_ptr<HttpReply> reply);
  // One message from the engine other than FailedMessage.
  void OnMessage(LinkMessage message);

  // kRestarting and kFailed end every live request with `public_reason` and answer new ones with
  // it: with status 500 after kFailed, else with 503. kSleeping does the same for new ones only.
  void OnEngineState(EngineState state, const std::string& public_reason, double retry_after_s = 5);
  // Ends every live request with `error`.
  void FailAll(const ApiError& error);
  bool ready() const { return max_model_len_ > 0 && !gone_; }
  size_t live() const { return live_.size(); }
  ServeMetrics& metrics() { return metrics_; }

 private:
  using Reply = std::shared_ptr<HttpReply>;
  using Route = void (Frontend::*)(const HttpRequest&, Reply);
  struct Endpoint {
    const char* method;
    Route route;
    bool needs_engine;
  };
  static const std::map<std::string, Endpoint, std::less<>>& Endpoints();

  void Health(const HttpRequest&, Reply reply);
  void Models(const HttpRequest&, Reply reply);
  void Metrics(const HttpRequest&, Reply reply);
  void Version(const HttpRequest&, Reply reply);
  void ServerInfo(const HttpRequest&, Reply reply);
  void Completions(const HttpRequest& request, Reply reply);
  void Chat(const HttpRequest& request, Reply reply);
  void Tokenize(const HttpRequest& request, Reply reply);
  void Detokenize(const HttpRequest& request, Reply reply);

  void Generate(ApiResult<GenerationRequest> request, int64_t arrived_ns, Reply reply);
  void Start(GenerationRequest request, std::vector<std::vector<int32_t>> prompts,
             int64_t arrived_ns, Reply reply);
  void OnEvent(const TokenEvent& event);
  // Forgets a request's choices and tells the engine to stop them.
  void Cancel(const std::shared_ptr<Generation>& generation);

  ServedModel model_;
  const Tokenizer& tokenizer_;
  Intake intake_;
  SendToEngine send_;
  ServeMetrics metrics_;
  size_t max_model_len_ = 0;  // 0 until the engine is ready
  Json server_info_;
  EngineStats stats_;
  std::optional<ApiError> gone_;  // the answer while there is no engine
  int64_t created_;
  uint64_t next_id_ = 1;
  std::unordered_map<uint64_t, std::pair<std::shared_ptr<Generation>, size_t>> live_;
};

}  // namespace pinion
