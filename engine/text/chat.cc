// The engine's side of the chat helper: starts it, asks it, kills it when it takes too long.

#include "engine/text/chat.h"

#include <utility>

#include "engine/base/clock.h"
#include "engine/base/descriptor.h"
#include "engine/base/strings.h"
#include "engine/text/frames.h"
#include "engine/text/helper_process.h"

namespace pinion {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kRenderLimitNs = 2 * kSecond;

Result<std::string> ReadAnswer(const std::string& text) {
  PINION_ASSIGN(const Json answer, Json::Parse(text));
  if (const Json* error = answer.Find("error")) {
    PINION_ASSIGN(const std::string type, Require<std::string>(*error, "type"));
    PINION_ASSIGN(const std::string message, Require<std::string>(*error, "message"));
    return Fail(ErrorCode::kUsage, StrCat(type, ": ", message));
  }
  return Require<std::string>(answer, "rendered");
}

}  // namespace

struct ChatRenderer::State {
  // One running helper process.
  struct Helper {
    Process process;
    Descriptor socket;

    static Result<Helper> Start() {
      PINION_ASSIGN(HelperProcess started, StartHelper("chat-helper"));
      Helper helper{std::move(started.process), std::move(started.socket)};
      auto ready = ReadFrame(helper.socket.get(), NowNs() + kHelperStartLimitNs);
      if (!ready) return Unexpected(std::move(ready).error().In("the chat helper does not start"));
      return helper;
    }

    Result<std::string> Ask(const std::string& request) {
      const int64_t deadline = NowNs() + kRenderLimitNs;
      PINION_TRY(WriteFrame(socket.get(), request, deadline));
      return ReadFrame(socket.get(), deadline);
    }
  };

  std::optional<std::string> now;
  std::optional<Helper> helper;
};

ChatRenderer::ChatRenderer(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChatRenderer::~ChatRenderer() = default;

Result<std::unique_ptr<ChatRenderer>> ChatRenderer::Start(std::optional<std::string> now) {
  auto state = std::make_unique<State>();
  state->now = std::move(now);
  PINION_ASSIGN(state->helper, State::Helper::Start());
  return std::unique_ptr<ChatRenderer>(new ChatRenderer(std::move(state)));
}

Result<std::string> ChatRenderer::Render(const ChatRequest& request) {
  Json message = Json::MakeObject();
  message.Set("template", request.chat_template);
  message.Set("messages", request.messages);
  message.Set("tools", request.tools);
  message.Set("kwargs", request.kwargs);
  message.Set("continue_final_message", request.continue_final_message);
  message.Set("fits_contents", request.fits_contents);
  message.Set("moves_instructions", request.moves_instructions);
  message.Set("now", state_->now ? Json(*state_->now) : Json());
  const std::string text = message.Dump();

  // The helper dies with the thread that started it, so an idle one may be gone: ask a new one,
  // once.
  for (int attempt = 0;; ++attempt) {
    const bool fresh = !state_->helper;
    if (fresh) {
      PINION_ASSIGN(state_->helper, State::Helper::Start());
    }
    auto answer = state_->helper->Ask(text);
    if (answer) return ReadAnswer(*answer);
    state_->helper.reset();  // killed: a late answer would be taken for the next one
    const bool gone = answer.error().code == ErrorCode::kIo;
    if (gone && !fresh && attempt == 0) continue;
    if (gone)
      return Fail(ErrorCode::kExhausted,
                  "the chat template crashed its helper process, most likely for lack of memory");
    return Fail(ErrorCode::kExhausted,
                StrCat("the chat template was stopped: it may run for ", kRenderLimitNs / kSecond,
                       " s and write ", FormatBytes(kMaxFrameBytes)));
  }
}

}  // namespace pinion
