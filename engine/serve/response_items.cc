#include "engine/serve/response_items.h"

#include <string>
#include <utility>
#include <vector>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/serve/field_readers.h"

namespace pinion {
namespace {

using Checked = ApiResult<void>;

// The text of a string or of a list of parts of text, whichever side wrote them.
ApiResult<std::string> ReadText(const Json& item, const char* key, const std::string& where) {
  const Json* content = item.Find(key);
  const std::string at = StrCat(where, ".", key);
  if (content && content->is_string()) return content->string();
  if (!content || !content->is_array())
    return Bad(at, StrCat("'", at, "' is ", content ? Excerpt(*content) : "missing",
                          ", want a string or a list of parts"));
  std::vector<std::string> texts;
  for (const Json& part : content->array()) {
    PINION_ASSIGN(const std::string type, ReadString(part, "type", at));
    if (type != "input_text" && type != "output_text" && type != "text" && type != "refusal" &&
        type != "reasoning_text" && type != "summary_text")
      return Bad(at, StrCat("'", at, "' has a part of type '", type.substr(0, 40),
                            "', which is not supported here; want text"));
    PINION_ASSIGN(texts.emplace_back(),
                  ReadString(part, type == "refusal" ? "refusal" : "text", at));
  }
  return Join(texts, "\n");
}

bool IsEmpty(const Json* list) { return !list || (list->is_array() && list->array().empty()); }

// The messages of a chat, put together item by item.
class Messages {
 public:
  void AddInstructions(std::string text) { Add("system", std::move(text)); }

  Checked Read(const Json& item, const std::string& where) {
    if (!item.is_object()) return Bad(where, StrCat("'", where, "' must be an object"));
    PINION_ASSIGN(const std::string type, Get<std::string>(item, "type", "message"));
    if (type == "message") return ReadMessage(item, where);
    if (type == "function_call") return ReadCall(item, where);
    if (type == "function_call_output") return ReadOutput(item, where);
    if (type == "reasoning") return ReadReasoning(item, where);
    if (type == "item_reference")
      return Bad(where, StrCat("'", where,
                               "' is a reference, but this server stores no items; "
                               "send the item itself"));
    return Bad(where, StrCat("'", where, "' is an item of type '", type.substr(0, 40),
                             "', want message, function_call, function_call_output or reasoning"));
  }

  Json::Array Take(bool& continues) {
    const bool answer_begun = unfinished_ && calls_.empty() && !texts_.empty();
    EndTurn();
    continues = answer_begun;
    return std::move(messages_);
  }

 private:
  // Instructions and the system's messages behind them are one message: many templates know one.
  void Add(const char* role, std::string text) {
    EndTurn();
    if (role == std::string_view("system") && !messages_.empty() && only_system_) {
      Json& first = messages_.back();
      first.Set("content", StrCat(first.Find("content")->string(), "\n\n", text));
      return;
    }
    only_system_ = messages_.empty() && role == std::string_view("system");
    messages_.push_back(Json(Json::Object{{"role", role}, {"content", std::move(text)}}));
  }

  Checked ReadMessage(const Json& item, const std::string& where) {
    PINION_ASSIGN(const std::string role, ReadString(item, "role", where));
    PINION_ASSIGN(std::string text, ReadText(item, "content", where));
    if (role == "assistant") {
      PINION_ASSIGN(const std::string status, Get<std::string>(item, "status", "completed"));
      unfinished_ = status != "completed";
      texts_.push_back(std::move(text));
    } else if (role == "system" || role == "developer") {
      Add("system", std::move(text));
    } else if (role == "user") {
      Add("user", std::move(text));
    } else {
      return Bad(where + ".role", StrCat("'", where, ".role' is '", role.substr(0, 40),
                                         "', want user, assistant, system or developer"));
    }
    return {};
  }

  Checked ReadCall(const Json& item, const std::string& where) {
    PINION_ASSIGN(std::string id, ReadString(item, "call_id", where));
    PINION_ASSIGN(std::string name, ReadString(item, "name", where));
    PINION_ASSIGN(std::string arguments, ReadString(item, "arguments", where));
    Json function(Json::Object{{"name", std::move(name)}, {"arguments", std::move(arguments)}});
    calls_.push_back(Json(Json::Object{
        {"id", std::move(id)}, {"type", "function"}, {"function", std::move(function)}}));
    return {};
  }

  Checked ReadOutput(const Json& item, const std::string& where) {
    PINION_ASSIGN(std::string id, ReadString(item, "call_id", where));
    PINION_ASSIGN(std::string text, ReadText(item, "output", where));
    Add("tool", std::move(text));
    messages_.back().Set("tool_call_id", std::move(id));
    return {};
  }

  // The thoughts themselves, else their summary; encrypted ones are for their author alone.
  Checked ReadReasoning(const Json& item, const std::string& where) {
    const char* key =
        IsEmpty(item.Find("content")) || !Given(item, "content") ? "summary" : "content";
    if (!Given(item, key)) return {};
    PINION_ASSIGN(std::string text, ReadText(item, key, where));
    if (!text.empty()) thoughts_.push_back(std::move(text));
    return {};
  }

  void EndTurn() {
    if (texts_.empty() && thoughts_.empty() && calls_.empty()) return;
    Json message(Json::Object{{"role", "assistant"}, {"content", Join(texts_, "\n")}});
    if (!thoughts_.empty()) message.Set("reasoning_content", Join(thoughts_, "\n"));
    if (!calls_.empty()) message.Set("tool_calls", Json(std::move(calls_)));
    messages_.push_back(std::move(message));
    texts_.clear();
    thoughts_.clear();
    calls_.clear();
    only_system_ = unfinished_ = false;
  }

  Json::Array messages_;
  bool only_system_ = false;                   // messages_ is one, of the system
  std::vector<std::string> texts_, thoughts_;  // of the assistant's turn, which has not ended
  Json::Array calls_;
  bool unfinished_ = false;  // the last of texts_
};

}  // namespace

ApiResult<void> AddInput(const Json& body, Json& chat) {
  Messages messages;
  PINION_ASSIGN(std::string instructions, Get<std::string>(body, "instructions", ""));
  if (!instructions.empty()) messages.AddInstructions(std::move(instructions));
  const Json* input = body.Find("input");
  if (input && input->is_string()) {
    const Json item(Json::Object{{"role", "user"}, {"content", *input}});
    PINION_TRY(messages.Read(item, "input"));
  } else if (input && input->is_array() && !input->array().empty()) {
    for (size_t i = 0; i < input->array().size(); ++i)
      PINION_TRY(messages.Read(input->array()[i], StrCat("input[", i, "]")));
  } else {
    return Bad("input", StrCat("'input' is ", input ? Excerpt(*input) : "missing",
                               ", want a string or a list of at least one item"));
  }
  bool continues = false;
  Json::Array taken = messages.Take(continues);
  if (taken.empty())
    return Bad("input", "'input' has no text and no call, want a string or an item with either");
  chat.Set("messages", Json(std::move(taken)));
  if (continues) chat.Set("continue_final_message", true);
  return {};
}

}  // namespace pinion
