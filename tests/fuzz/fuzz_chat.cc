#include <string>

#include "engine/base/check.h"
#include "engine/serve/field_readers.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/server.h"

namespace pinion::fuzz {
namespace {

constexpr size_t kMemory = 1 << 20;

void CheckMessage(const Json& message) {
  CHECK(message.is_object());
  const Json* role = message.Find("role");
  CHECK(role && role->is_string());
  const Json* content = message.Find("content");
  CHECK(content && (content->is_string() || content->is_array())) << "templates know no others";
}

// In place of the template: checks that the helper gets what is promised to templates, and answers
// as a simple one would.
Result<std::string> Render(const ChatRequest& request) {
  CHECK(request.messages.is_array() && !request.messages.array().empty());
  CHECK(request.tools.is_null() || request.tools.is_array());
  CHECK(request.kwargs.is_object() && request.kwargs.Find("add_generation_prompt"));
  std::string text;
  for (const Json& message : request.messages.array()) {
    CheckMessage(message);
    text += message.Find("role")->string() + TextOfContent(*message.Find("content"));
  }
  // Text that crosses the helper's socket means the same on its other side. The arguments of a tool
  // call may nest as deep as a body, and lie some levels down: Python reads more than our parser.
  for (const Json* each : {&request.messages, &request.tools, &request.kwargs}) {
    const std::string sent = each->Dump();
    const auto read = Json::Parse(sent);
    CHECK(read ? *read == *each : read.error().message.find("nested deeper") != sent.npos) << sent;
  }
  if (text.empty()) return Fail(ErrorCode::kUsage, "TemplateError: nothing was said");
  return text;
}

}  // namespace

void Chat(std::string_view body) {
  const auto memory = std::make_shared<MemoryBudget>(kMemory);
  for (const Api api : {Api::kChat, Api::kMessages, Api::kResponses}) {
    HttpRequest request = RequestOf(body, memory);
    CheckPrepared(FrontEnd().Generation(
        request, api, kModelTokens, kKvTokens, Render, [](const Grammar&) { return Status(); },
        [](double) {}));
  }
  {
    HttpRequest request = RequestOf(body, memory);
    const auto answer = FrontEnd().Tokenize(request, kModelTokens, Render);
    if (!answer) CheckRefusal(answer.error());
  }
  CHECK(memory->used() == 0) << memory->used() << " bytes are still counted";
}

}  // namespace pinion::fuzz
