// The engine's side of the chat helper: starts it, asks it, kills it when it takes too long.

#include "engine/text/chat.h"

#include <utility>

#include "engine/base/clock.h"
#include "engine/base/descriptor.h"
#include "engine/base/strings.h"
#include "engine/text/frames.h"
#include "engine/text/helper_process.h"

namespace pinion {

extern const char* const kChatHelperSource;

namespace {

constexpr uint64_t kMaxTemplateBytes = uint64_t{1} << 30;
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kRenderLimitNs = 2 * kSecond;

Result<std::string> ReadAnswer(const std::string& text) {
  PINION_ASSIGN(const Json answer, Json::Parse(text));
  if (answer.Find("error")) {
    PINION_ASSIGN(std::string error, Require<std::string>(answer, "error"));
    return Fail(ErrorCode::kUsage, std::move(error));
  }
  return Require<std::string>(answer, "rendered");
}

}  // namespace

struct ChatRenderer::State {
  std::optional<std::string> now;
  std::optional<HelperProcess> helper;

  Status Start() {
    const auto first = FirstAnswer();
    if (first) return {};
    helper.reset();
    return Fail(ErrorCode::kIo,
                StrCat("the chat helper does not start: ", first.error().message, "; want ",
                       kSystemPython, " with Jinja2, Debian's python3 and python3-jinja2"));
  }

  // Of an empty template: no request after it waits for Python to start.
  Result<std::string> FirstAnswer() {
    PINION_ASSIGN(helper, StartHelper({"chat-helper",
                                       {{"chat_helper", kChatHelperSource}},
                                       /*packages=*/"",
                                       kMaxTemplateBytes}));
    PINION_ASSIGN(const std::string answer,
                  Ask(R"({"template": "", "messages": []})", NowNs() + kHelperStartLimitNs));
    return ReadAnswer(answer);
  }

  Result<std::string> Ask(const std::string& request, int64_t deadline_ns) {
    PINION_TRY(WriteFrame(helper->socket.get(), request, deadline_ns));
    return ReadFrame(helper->socket.get(), deadline_ns);
  }
};

ChatRenderer::ChatRenderer(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChatRenderer::~ChatRenderer() = default;

Result<std::unique_ptr<ChatRenderer>> ChatRenderer::Start(std::optional<std::string> now) {
  auto state = std::make_unique<State>();
  state->now = std::move(now);
  PINION_TRY(state->Start());
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
    if (fresh) PINION_TRY(state_->Start());
    auto answer = state_->Ask(text, NowNs() + kRenderLimitNs);
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
