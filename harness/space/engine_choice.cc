#include "harness/space/engine_choice.h"

#include <algorithm>
#include <cctype>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/run/settings.h"
#include "harness/space/json_fields.h"
#include "harness/space/settings.h"

namespace pinion::harness {
namespace {

using Kind = EngineChoice::Kind;

Result<Kind> ParseKind(const std::string& name) {
  for (const EngineRow& row : EngineRows())
    if (name == row.name) return row.kind;
  return Fail(ErrorCode::kUsage,
              StrCat("unknown engine '", name, "'; known are ", Join(EngineNames(), ", ")));
}

Status ReadKind(const Json& value, EngineChoice& engine) {
  PINION_ASSIGN(const std::string kind, ToText(value, "'engine' of one of 'engines'"));
  PINION_ASSIGN(engine.kind, ParseKind(kind));
  return {};
}

Status ReadEnvironment(const Json& value, EngineChoice& engine) {
  engine.environment.clear();
  const auto all = value.is_object() ? value.object() : Json::Object();
  bool are_texts = value.is_object();
  for (const auto& [name, text] : all) {
    are_texts = are_texts && text.is_string();
    if (are_texts) engine.environment.emplace_back(name, text.string());
  }
  if (!are_texts)
    return Fail(ErrorCode::kUsage,
                StrCat("'environment' must be an object of strings, not ", Excerpt(value)));
  for (const auto& [name, text] : engine.environment)
    if (name.empty() || name.find('=') != std::string::npos)
      return Fail(ErrorCode::kUsage,
                  StrCat("'environment' has '", name,
                         "', which is not a valid variable name: it must not contain '='"));
  return CheckNoneTwice(value, "'environment'");
}

Json WriteEnvironment(const EngineChoice& engine) {
  Json environment = Json::MakeObject();
  for (const auto& [name, value] : engine.environment) environment.Set(name, value);
  return engine.environment.empty() ? Json() : environment;
}

// A text that is left out if it is empty.
JsonField<EngineChoice> Text(const char* key, std::string EngineChoice::*member) {
  JsonField<EngineChoice> field = Value(key, member, ToText);
  field.write = [=](const EngineChoice& engine) {
    return (engine.*member).empty() ? Json() : Json(engine.*member);
  };
  return field;
}

Status ReadEngineSettings(const Json& value, EngineChoice& engine) {
  if (!value.is_object())
    return Fail(ErrorCode::kUsage, StrCat("'settings' of an engine must be an object such as ",
                                          "{\"isa\":\"avx2\"}, not ", Excerpt(value)));
  PINION_TRY(CheckNoneTwice(value, "'settings' of an engine"));
  if (value.Find("engine"))
    return Fail(ErrorCode::kUsage,
                "'engine' stands in 'settings' of an engine: put it beside them");
  PINION_TRY(SettingsOf(value));
  engine.settings = value;
  return {};
}

Json WriteEngineSettings(const EngineChoice& engine) {
  return engine.settings.object().empty() ? Json() : engine.settings;
}

bool IsServed(const EngineChoice& engine) { return !engine.is_pinion(); }

const JsonFields<EngineChoice>& EngineFields() {
  static const JsonFields<EngineChoice> fields = {
      {"engine", ReadKind, [](const EngineChoice& engine) { return Json(Name(engine.kind)); }},
      Text("name", &EngineChoice::name),
      Text("model", &EngineChoice::model),
      Text("binary", &EngineChoice::binary),
      List("command", &EngineChoice::command, ToText),
      List("arguments", &EngineChoice::arguments, ToText),
      {"environment", ReadEnvironment, WriteEnvironment},
      {"settings", ReadEngineSettings, WriteEngineSettings},
      OnlyIf(IsServed, Value("health", &EngineChoice::health, ToText)),
      OnlyIf(IsServed, Value("endpoint", &EngineChoice::endpoint, ToText)),
      OnlyIf(IsServed, Value("start_timeout", &EngineChoice::start_timeout_s, ToSeconds)),
  };
  return fields;
}

// Names stand in labels, tables and files' columns.
Status CheckName(const std::string& name) {
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](const char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) || letter == '.' || letter == '-' ||
           letter == '_';
  });
  if (plain) return {};
  return Fail(ErrorCode::kUsage, StrCat("the engine's name '", name, "' must be letters, digits, ",
                                        "'.', '-' and '_'"));
}

Status Validate(const EngineChoice& engine) {
  PINION_TRY(CheckName(engine.name));
  if (!engine.is_pinion() && !engine.binary.empty())
    return Fail(ErrorCode::kUsage,
                StrCat("'binary' names another build of Pinion, but ", engine.name, " is ",
                       Name(engine.kind), ": give its program as 'command'"));
  if (engine.is_pinion() && !engine.command.empty())
    return Fail(ErrorCode::kUsage,
                "an engine 'pinion' has no 'command': name another build's file as 'binary'");
  if (engine.kind == Kind::kCommand && engine.command.empty())
    return Fail(ErrorCode::kUsage,
                "an engine 'command' needs its 'command', such as "
                "[\"./server\",\"--port\",\"{port}\"]");
  if (engine.health.empty() || engine.health[0] != '/')
    return Fail(
        ErrorCode::kUsage,
        StrCat("'health' of an engine must be a path such as /health, not ", engine.health));
  if (engine.endpoint != "completions" && engine.endpoint != "chat")
    return Fail(ErrorCode::kUsage, StrCat("'endpoint' of an engine must be completions or chat, ",
                                          "not ", engine.endpoint));
  if (!(engine.start_timeout_s > 0))
    return Fail(ErrorCode::kUsage, "'start_timeout' of an engine must be above 0 seconds");
  return {};
}

// Whether a setting's placeholder is in the command, an argument or a variable.
bool Uses(const EngineChoice& engine, const std::string& key) {
  const std::string placeholder = StrCat("{", key, "}");
  const auto has_it = [&](const std::string& word) { return word.find(placeholder) != word.npos; };
  return std::any_of(engine.command.begin(), engine.command.end(), has_it) ||
         std::any_of(engine.arguments.begin(), engine.arguments.end(), has_it) ||
         std::any_of(engine.environment.begin(), engine.environment.end(),
                     [&](const auto& variable) { return has_it(variable.second); });
}

}  // namespace

const std::vector<EngineRow>& EngineRows() {
  static const std::vector<EngineRow> rows = {
      {.kind = Kind::kPinion, .name = "pinion", .program = {}, .binds_memory = true},
      {.kind = Kind::kVllm,
       .name = "vllm",
       .program = {"vllm", "serve"},
       .counterpart = &SettingRow::vllm,
       .binds_memory = true},
      {.kind = Kind::kLlamaCpp,
       .name = "llama.cpp",
       .program = {"llama-server"},
       .counterpart = &SettingRow::llama_cpp},
      {.kind = Kind::kCommand, .name = "command", .program = {}},
  };
  return rows;
}

const EngineRow& RowOf(Kind kind) {
  const auto& rows = EngineRows();
  return *std::find_if(rows.begin(), rows.end(),
                       [&](const EngineRow& row) { return row.kind == kind; });
}

std::vector<std::string> EngineNames() {
  std::vector<std::string> names;
  for (const EngineRow& row : EngineRows()) names.emplace_back(row.name);
  return names;
}

const char* Name(Kind kind) { return RowOf(kind).name; }

bool HasSetting(const EngineChoice& engine, const std::string& key) {
  const SettingRow* row = FindSetting(key);
  if (!row) return false;
  if (engine.is_pinion()) return true;
  const auto has = [&](const EngineRow& one) {
    return one.counterpart && !(row->*one.counterpart).name.empty();
  };
  if (RowOf(engine.kind).counterpart) return has(RowOf(engine.kind));
  const bool has_any = std::any_of(EngineRows().begin(), EngineRows().end(), has);
  return (has_any && !row->is_of_server) || Uses(engine, key);
}

bool HasValue(const EngineChoice& engine, const SettingRow& row, const Json& value) {
  const auto counterpart = RowOf(engine.kind).counterpart;
  return HasSetting(engine, row.key) &&
         (!counterpart || CounterpartValue(row.*counterpart, value).has_value());
}

Result<EngineChoice> ReadEngineChoice(const Json& json) {
  EngineChoice engine;
  if (json.is_string()) {
    PINION_TRY(ReadKind(json, engine));
  } else if (json.is_object()) {
    if (json.Find("command")) engine.kind = Kind::kCommand;
    PINION_TRY(ReadFields(json, "one of 'engines'", EngineFields(), engine));
  } else {
    return Fail(ErrorCode::kUsage,
                StrCat("an engine must be a name or an object, not ", Excerpt(json)));
  }
  if (!json.is_object() || !json.Find("name")) engine.name = Name(engine.kind);
  PINION_TRY(Validate(engine));
  return engine;
}

Json ToJson(const EngineChoice& engine) { return WriteFields(EngineFields(), engine); }

}  // namespace pinion::harness
