// Reads the bodies of Anthropic's Messages as those of chat completions, which say the same.

#include "engine/serve/schema_messages.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/serve/field_readers.h"
#include "engine/serve/fields.h"

namespace pinion {
namespace {

tl::unexpected<ApiError> BadBlock(const std::string& where, const std::string& type) {
  return Bad(where, StrCat("'", where, "' has a block of type '", type.substr(0, 40),
                           "', which is not supported here; want text"));
}

// A block of the instructions that is about the request and differs in each one of a conversation:
// Claude Code begins with it. A prompt that had it would never be in the cache; vLLM drops it, too.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header";

// The text of a string or of a list of text blocks.
ApiResult<std::string> ReadText(const Json* content, const std::string& where,
                                std::string_view dropped = {}) {
  if (!content || content->is_null()) return std::string();
  if (content->is_string()) return content->string();
  if (!content->is_array())
    return Bad(where, StrCat("'", where, "' is ", Excerpt(*content),
                             ", want a string or a list of blocks"));
  std::vector<std::string> texts;
  for (const Json& block : content->array()) {
    PINION_ASSIGN(const std::string type, ReadString(block, "type", where));
    if (type != "text") return BadBlock(where, type);
    PINION_ASSIGN(std::string text, ReadString(block, "text", where));
    if (dropped.empty() || !text.starts_with(dropped)) texts.push_back(std::move(text));
  }
  return Join(texts, "\n");
}

// One turn of the conversation as it is read, block by block.
struct Turn {
  std::vector<std::string> texts, thoughts;
  Json::Array calls, results;  // messages of their own: results of calls
};

ApiResult<void> ReadCall(const Json& block, const std::string& where, Turn& turn) {
  PINION_ASSIGN(std::string id, ReadString(block, "id", where));
  PINION_ASSIGN(std::string name, ReadString(block, "name", where));
  const Json* input = block.Find("input");
  if (!input || !input->is_object())
    return Bad(where + ".input", StrCat("'", where, ".input' must be an object"));
  Json function(Json::Object{{"name", std::move(name)}, {"arguments", *input}});
  turn.calls.push_back(Json(Json::Object{
      {"id", std::move(id)}, {"type", "function"}, {"function", std::move(function)}}));
  return {};
}

ApiResult<void> ReadResult(const Json& block, const std::string& where, Turn& turn) {
  PINION_ASSIGN(std::string id, ReadString(block, "tool_use_id", where));
  PINION_ASSIGN(std::string text, ReadText(block.Find("content"), where + ".content"));
  turn.results.push_back(Json(Json::Object{
      {"role", "tool"}, {"tool_call_id", std::move(id)}, {"content", std::move(text)}}));
  return {};
}

ApiResult<void> ReadBlock(const Json& block, bool user, const std::string& where, Turn& turn) {
  PINION_ASSIGN(const std::string type, ReadString(block, "type", where));
  if (type == "text") {
    PINION_ASSIGN(turn.texts.emplace_back(), ReadString(block, "text", where));
    return {};
  }
  if (user && type == "tool_result") return ReadResult(block, where, turn);
  if (!user && type == "tool_use") return ReadCall(block, where, turn);
  if (!user && type == "thinking") {
    PINION_ASSIGN(turn.thoughts.emplace_back(), ReadString(block, "thinking", where));
    return {};
  }
  if (!user && type == "redacted_thinking") return {};  // no text for anybody but its author
  return BadBlock(where, type);
}

ApiResult<void> ReadTurn(const Json& message, bool user, const std::string& where, Turn& turn) {
  const Json* content = message.Find("content");
  if (content && content->is_string()) {
    turn.texts.push_back(content->string());
    return {};
  }
  if (!content || !content->is_array())
    return Bad(where, StrCat("'", where, "' is ", content ? Excerpt(*content) : "missing",
                             ", want a string or a list of blocks"));
  for (size_t i = 0; i < content->array().size(); ++i)
    PINION_TRY(ReadBlock(content->array()[i], user, StrCat(where, "[", i, "]"), turn));
  return {};
}

// A turn that answers calls and says more is several messages: the results come first.
void AddTurn(Turn turn, bool user, Json& messages) {
  for (Json& result : turn.results) messages.Append(std::move(result));
  if (user && turn.texts.empty()) return;
  Json message(
      Json::Object{{"role", user ? "user" : "assistant"}, {"content", Join(turn.texts, "\n")}});
  if (!turn.thoughts.empty()) message.Set("reasoning_content", Join(turn.thoughts, "\n"));
  if (!turn.calls.empty()) message.Set("tool_calls", Json(std::move(turn.calls)));
  messages.Append(std::move(message));
}

// Instructions may stand among the messages, as vLLM lets them; "ctx" and "msg" are what some
// versions of Claude Code call a user's.
enum class MessageRole { kUser, kAssistant, kSystem };
ApiResult<MessageRole> ReadRole(const Json& message, const std::string& where) {
  PINION_ASSIGN(const std::string role, ReadString(message, "role", where));
  if (role == "user" || role == "ctx" || role == "msg") return MessageRole::kUser;
  if (role == "assistant") return MessageRole::kAssistant;
  if (role == "system") return MessageRole::kSystem;
  return Bad(where + ".role", StrCat("'", where, ".role' is '", role.substr(0, 40),
                                     "', want user, assistant or system"));
}

Json SystemMessage(std::string text) {
  return Json(Json::Object{{"role", "system"}, {"content", std::move(text)}});
}

// The conversation as it is read, turn by turn.
class Turns {
 public:
  explicit Turns(Json& messages) : messages_(messages) {}

  // Those before all other messages become one.
  ApiResult<void> AddInstructions(const Json* content, const std::string& where) {
    PINION_ASSIGN(std::string text, ReadText(content, where, kBillingHeader));
    if (text.empty()) return {};
    Close();
    if (said_)
      messages_.Append(SystemMessage(std::move(text)));
    else
      first_.push_back(std::move(text));
    return {};
  }

  // Neighbours of one role are one turn, as the API has it.
  ApiResult<void> Add(const Json& message, bool user, const std::string& where) {
    if (!std::exchange(said_, true) && !first_.empty())
      messages_.Append(SystemMessage(Join(first_, "\n")));
    if (turn_ && user_ != user) Close();
    user_ = user;
    if (!turn_) turn_.emplace();
    return ReadTurn(message, user, where, *turn_);
  }

  // Whether there was a message of the user or the assistant.
  bool said() const { return said_; }
  // Whether the assistant's turn is the last: the beginning of the answer.
  bool answer_has_begun() const { return turn_ && !user_ && turn_->calls.empty(); }

  void Close() {
    if (turn_) AddTurn(*std::exchange(turn_, {}), user_, messages_);
  }

 private:
  Json& messages_;
  std::vector<std::string> first_;  // instructions that no message precedes
  std::optional<Turn> turn_;        // that has not ended
  bool user_ = false;               // whose it is
  bool said_ = false;
};

ApiResult<void> AddMessages(const Json& body, Json& messages, Json& chat) {
  const Json* list = body.Find("messages");
  if (!list || !list->is_array() || list->array().empty())
    return Bad("messages", "'messages' must be a list of at least one message");
  Turns turns(messages);
  PINION_TRY(turns.AddInstructions(body.Find("system"), "system"));
  for (size_t i = 0; i < list->array().size(); ++i) {
    const std::string where = StrCat("messages[", i, "]");
    const Json& message = list->array()[i];
    PINION_ASSIGN(const MessageRole role, ReadRole(message, where));
    const std::string content = where + ".content";
    if (role == MessageRole::kSystem) {
      PINION_TRY(turns.AddInstructions(message.Find("content"), content));
    } else {
      PINION_TRY(turns.Add(message, role == MessageRole::kUser, content));
    }
  }
  if (!turns.said())
    return Bad("messages", "'messages' has instructions alone, want a message of a user");
  if (turns.answer_has_begun()) chat.Set("continue_final_message", true);
  turns.Close();
  return {};
}

ApiResult<void> AddToolsOfMessages(const Json& body, Json& chat) {
  const Json* list = body.Find("tools");
  if (!list || list->is_null()) return {};
  if (!list->is_array()) return Bad("tools", "'tools' must be a list");
  Json tools = Json::MakeArray();
  for (const Json& tool : list->array()) {
    const std::string where = StrCat("tools[", tools.array().size(), "]");
    if (!tool.is_object()) return Bad(where, StrCat("'", where, "' must be an object"));
    PINION_ASSIGN(const std::string type, Get<std::string>(tool, "type", "custom"));
    if (type != "custom")
      return Bad(where, StrCat("'", where, "' is of type '", type.substr(0, 40),
                               "', which this server does not know; want custom, or start the "
                               "server with --ignore-unknown-fields, which leaves it out"));
    PINION_ASSIGN(std::string name, ReadString(tool, "name", where));
    Json function(Json::Object{{"name", std::move(name)}});
    if (Given(tool, "description")) function.Set("description", *tool.Find("description"));
    const Json* schema = tool.Find("input_schema");
    if (!schema || !schema->is_object())
      return Bad(where + ".input_schema", StrCat("'", where, ".input_schema' must be an object"));
    function.Set("parameters", *schema);
    tools.Append(Json(Json::Object{{"type", "function"}, {"function", std::move(function)}}));
  }
  chat.Set("tools", std::move(tools));
  return {};
}

ApiResult<void> AddToolChoiceOfMessages(const Json& body, Json& chat) {
  const Json* choice = body.Find("tool_choice");
  if (!choice || choice->is_null()) return {};
  PINION_ASSIGN(const std::string type, ReadString(*choice, "type", "tool_choice"));
  PINION_ASSIGN(const bool single, Get<bool>(*choice, "disable_parallel_tool_use", false));
  if (single) chat.Set("parallel_tool_calls", false);
  if (type == "auto" || type == "none") {
    chat.Set("tool_choice", type);
  } else if (type == "any") {
    chat.Set("tool_choice", "required");
  } else if (type == "tool") {
    PINION_ASSIGN(std::string name, ReadString(*choice, "name", "tool_choice"));
    chat.Set("tool_choice",
             Json(Json::Object{{"type", "function"},
                               {"function", Json(Json::Object{{"name", std::move(name)}})}}));
  } else {
    return Bad("tool_choice.type", StrCat("'tool_choice.type' is '", type.substr(0, 40),
                                          "', want auto, any, tool or none"));
  }
  return {};
}

// `budget_tokens` of a `thinking` that is enabled.
ApiResult<void> AddThoughtBudget(const Json& body, const Json& thinking, Json& chat) {
  if (!Given(thinking, "budget_tokens")) return {};
  const auto budget = Optional<int>(thinking, "budget_tokens", 0);
  if (!budget || *budget < 1)
    return Bad("thinking.budget_tokens",
               StrCat("'thinking.budget_tokens' is ", Excerpt(*thinking.Find("budget_tokens")),
                      ", want a whole number of tokens from 1 to 2147483647"));
  if (!Given(body, "thinking_token_budget")) chat.Set("thinking_token_budget", *budget);
  return {};
}

ApiResult<void> AddThinking(const Json& body, Json& chat) {
  const Json* thinking = body.Find("thinking");
  if (!thinking || thinking->is_null()) return {};
  PINION_ASSIGN(const std::string type, ReadString(*thinking, "type", "thinking"));
  if (type != "enabled" && type != "disabled" && type != "adaptive")
    return Bad("thinking.type", StrCat("'thinking.type' is '", type.substr(0, 40),
                                       "', want enabled, adaptive or disabled"));
  Json kwargs = Given(body, "chat_template_kwargs") ? *body.Find("chat_template_kwargs") : Json();
  if (!kwargs.is_null() && !kwargs.is_object())
    return Bad("chat_template_kwargs", "'chat_template_kwargs' must be an object");
  if (type == "enabled") PINION_TRY(AddThoughtBudget(body, *thinking, chat));
  kwargs.Set("enable_thinking", type != "disabled");
  chat.Set("chat_template_kwargs", std::move(kwargs));
  return {};
}

// How much to think, and a schema that the answer has to be of.
ApiResult<void> AddOutputConfig(const Json& body, Json& chat) {
  constexpr const char* kField = "output_config";
  if (!Given(body, kField)) return {};
  const Json& config = *body.Find(kField);
  if (!config.is_object())
    return Bad(kField, StrCat("'output_config' is ", Excerpt(config), ", want an object"));
  for (const auto& [name, value] : config.object())
    if (name != "effort" && name != "format" && !value.is_null())
      return Bad(kField,
                 StrCat("'output_config' has '", name.substr(0, 40), "', want effort or format"));
  if (Given(config, "effort")) {
    PINION_ASSIGN(std::string effort, ReadString(config, "effort", kField));
    chat.Set("reasoning_effort", std::move(effort));
  }
  if (!Given(config, "format")) return {};
  const Json& format = *config.Find("format");
  const Json* schema = format.Find("schema");
  const Json* type = format.Find("type");
  if (!type || *type != Json("json_schema") || !schema || !schema->is_object())
    return Bad("output_config.format",
               StrCat("'output_config.format' is ", Excerpt(format, 100),
                      ", want {\"type\": \"json_schema\", \"schema\": an object}"));
  if (Given(body, "response_format"))
    return Bad("output_config.format",
               "'output_config.format' and 'response_format' both constrain the answer; send one "
               "of them");
  Json inner(Json::Object{{"name", "output"}, {"schema", *schema}});
  chat.Set("response_format",
           Json(Json::Object{{"type", "json_schema"}, {"json_schema", std::move(inner)}}));
  return {};
}

ApiResult<void> AddStopSequences(const Json& body, Json& chat) {
  constexpr const char* kField = "stop_sequences";
  if (!Given(body, kField)) return {};
  const Json& stop = *body.Find(kField);
  const auto is_text = [](const Json& one) { return one.is_string() && !one.string().empty(); };
  const bool is_list =
      stop.is_array() && std::all_of(stop.array().begin(), stop.array().end(),
                                     [&](const Json& one) { return is_text(one); });
  if (!is_list && !is_text(stop))
    return Bad(kField, StrCat("'stop_sequences' is ", Excerpt(stop, 100),
                              ", want a list of texts that are not empty"));
  chat.Set("stop", stop);
  return {};
}

}  // namespace

ApiResult<Json> ChatBodyOfMessages(const Json& body, bool generates) {
  Json chat = SharedFields(body, generates ? Api::kMessages : Api::kCountTokens,
                           generates ? Api::kChat : Api::kTokenize);
  if (generates && !Given(body, "max_tokens"))
    return Bad("max_tokens", "'max_tokens' is missing, want at least 1");
  Json messages = Json::MakeArray();
  PINION_TRY(AddMessages(body, messages, chat));
  chat.Set("messages", std::move(messages));
  PINION_TRY(AddToolsOfMessages(body, chat));
  PINION_TRY(AddToolChoiceOfMessages(body, chat));
  PINION_TRY(AddThinking(body, chat));
  PINION_TRY(AddOutputConfig(body, chat));
  if (generates) PINION_TRY(AddStopSequences(body, chat));
  return chat;
}

}  // namespace pinion
