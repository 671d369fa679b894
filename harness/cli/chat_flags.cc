#include "harness/cli/chat_flags.h"

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/serve/output_format.h"

namespace pinion::harness {
namespace {

constexpr const char* kChats = "Conversations";

// A file's content, or the text itself if it looks like a template.
Result<std::string> ReadChatTemplateFlag(const std::string& given) {
  if (given.find_first_of("{\n") != std::string::npos) return given;
  auto text = ReadFile(given, 4 << 20);
  if (text) return text;
  return Fail(ErrorCode::kUsage,
              StrCat("--chat-template: ", text.error().message, ", and it is no template itself"));
}

}  // namespace

void ChatFlags::AddTo(CLI::App& command, ServeOptions& options) {
  command
      .add_option("--tool-call-parser", options.tool_call_parser,
                  "format of the calls of tools in answers (default auto: by the chat template; "
                  "none: answers stay text)")
      ->group(kChats);
  command
      .add_option("--reasoning-parser", options.reasoning_parser,
                  "format of reasoning, which answers get as reasoning_content (default auto: by "
                  "the chat template; none: it stays in the text)")
      ->group(kChats);
  command
      .add_option("--chat-template", chat_template_,
                  "file with a chat template (Jinja), or the template itself, in place of the "
                  "model's own")
      ->group(kChats);
  command
      .add_flag("--trust-request-chat-template", options.limits.trust_request_chat_template,
                "requests may have a chat_template of their own, a program that runs here for up "
                "to 2 s; else: 400")
      ->group(kChats);
}

Status ChatFlags::Resolve(ServeOptions& options) const {
  PINION_TRY(ChooseOutputFormat(options.tool_call_parser, options.reasoning_parser, {}));
  if (!chat_template_.empty()) {
    PINION_ASSIGN(options.chat_template, ReadChatTemplateFlag(chat_template_));
  }
  return {};
}

}  // namespace pinion::harness
