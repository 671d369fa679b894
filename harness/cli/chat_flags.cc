#include "harness/cli/chat_flags.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/strings.h"
#include "engine/serve/output_format.h"
#include "engine/serve/schema.h"

namespace pinion::harness {
namespace {

constexpr const char* kChats = "Conversations";
constexpr const char* kSampling = "Defaults for requests";

// A file's content, or the text itself if it looks like a template.
Result<std::string> ReadChatTemplateFlag(const std::string& given) {
  if (given.find_first_of("{\n") != std::string::npos) return given;
  auto text = ReadFile(given, 4 << 20);
  if (text) return text;
  return Fail(ErrorCode::kUsage, StrCat("--chat-template: ", text.error().message,
                                        ", and the value is not a template either"));
}

// Empty if the flag was not given.
Result<Json::Object> ReadObject(const std::string& text, const char* flag) {
  if (text.empty()) return Json::Object{};
  auto object = Json::Parse(text);
  if (!object || !object->is_object())
    return Fail(ErrorCode::kUsage, StrCat(flag, " is ", text, ", want a JSON object"));
  return std::move(object->object());
}

// Nothing: the model's own.
Result<std::optional<Json>> ReadGenerationConfig(const std::string& given) {
  if (given.empty() || given == "auto") return std::optional<Json>();
  if (given == "vllm") return std::optional<Json>(Json::MakeObject());
  auto config = Json::ParseFile(given + "/generation_config.json");
  if (config && config->is_object()) return std::optional<Json>(*std::move(config));
  return Fail(ErrorCode::kUsage,
              StrCat("--generation-config is ", given, ", want auto, vllm, or a folder with a ",
                     "generation_config.json: ",
                     config ? "it holds no JSON object" : config.error().message));
}

Result<Json::Object> ReadGenerationOverrides(const std::string& given) {
  constexpr const char* kFlag = "--override-generation-config";
  PINION_ASSIGN(Json::Object overrides, ReadObject(given, kFlag));
  for (const auto& [name, value] : overrides)
    if (const auto& known = ApiDefaultNames();
        std::find(known.begin(), known.end(), name) == known.end())
      return Fail(ErrorCode::kUsage,
                  StrCat(kFlag, " has '", name, "', want some of ", Join(ApiDefaultNames(), ", ")));
  if (const Json json(overrides); json.Find("max_new_tokens"))
    if (const auto most = Optional<int>(json, "max_new_tokens", 0); !most || *most < 1)
      return Fail(ErrorCode::kUsage,
                  StrCat(kFlag, " has max_new_tokens ", json.Find("max_new_tokens")->Dump(),
                         ", want an integer of at least 1"));
  if (auto read = ReadApiDefaults(Json(overrides)); !read)
    return Fail(ErrorCode::kUsage, StrCat(kFlag, ": ", read.error().message));
  return overrides;
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
      .add_option("--default-chat-template-kwargs", template_kwargs_,
                  "JSON object that every chat template is given, such as "
                  "{\"enable_thinking\": false}; a request's chat_template_kwargs count more")
      ->group(kChats);
  command
      .add_option("--generation-config", generation_config_,
                  "sampling defaults: auto (default: the model's generation_config.json), "
                  "vllm (temperature 1, no limits), or a folder with a generation_config.json")
      ->group(kSampling);
  command
      .add_option("--override-generation-config", generation_overrides_,
                  "JSON object of such defaults that count more, such as {\"temperature\": 0.5}")
      ->group(kSampling);
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
  PINION_ASSIGN(options.template_kwargs,
                ReadObject(template_kwargs_, "--default-chat-template-kwargs"));
  PINION_ASSIGN(options.generation_config, ReadGenerationConfig(generation_config_));
  PINION_ASSIGN(options.generation_overrides, ReadGenerationOverrides(generation_overrides_));
  return {};
}

}  // namespace pinion::harness
