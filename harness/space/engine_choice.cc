#include "harness/space/engine_choice.h"

#include <algorithm>

#include "engine/base/strings.h"
#include "engine/run/settings.h"

namespace pinion::harness {
namespace {

using Kind = EngineChoice::Kind;
constexpr Kind kKinds[] = {Kind::kPinion, Kind::kVllm, Kind::kLlamaCpp, Kind::kCommand};

Result<Kind> ParseKind(const std::string& name) {
  for (const Kind kind : kKinds)
    if (name == Name(kind)) return kind;
  return Fail(ErrorCode::kUsage,
              StrCat("unknown engine '", name, "'; known are pinion, vllm, llama.cpp, command"));
}

tl::unexpected<Error> BadKey(const std::string& key, const char* want, const Json& value) {
  return Fail(ErrorCode::kUsage,
              StrCat("'", key, "' in 'engine' must be ", want, ", not ", value.Dump()));
}

Result<std::vector<std::string>> ToWords(const std::string& key, const Json& value) {
  std::vector<std::string> words;
  if (!value.is_array()) return BadKey(key, "a list of strings", value);
  for (const Json& word : value.array()) {
    if (!word.is_string()) return BadKey(key, "a list of strings", value);
    words.push_back(word.string());
  }
  return words;
}

Status ReadKey(const std::string& key, const Json& value, EngineChoice& engine) {
  if (key == "command" || key == "arguments") {
    PINION_ASSIGN((key == "command" ? engine.command : engine.arguments), ToWords(key, value));
  } else if (key == "environment") {
    if (!value.is_object()) return BadKey(key, "an object of strings", value);
    for (const auto& [name, text] : value.object()) {
      if (!text.is_string()) return BadKey(key, "an object of strings", value);
      engine.environment.emplace_back(name, text.string());
    }
  } else if (key == "health" || key == "endpoint" || key == "kind") {
    if (!value.is_string()) return BadKey(key, "text", value);
    if (key == "health") engine.health = value.string();
    if (key == "endpoint") engine.endpoint = value.string();
    if (key == "kind") {
      PINION_ASSIGN(engine.kind, ParseKind(value.string()));
    }
  } else if (key == "start_timeout") {
    if (!value.is_number() && !value.is_string())
      return BadKey(key, "seconds or text such as \"5m\"", value);
    PINION_ASSIGN(engine.start_timeout_s, value.is_number()
                                              ? Result<double>(value.number())
                                              : ParseDuration(value.string(), "'start_timeout'"));
  } else {
    return Fail(ErrorCode::kUsage,
                StrCat("unknown key '", key, "' in 'engine'; known are kind, command, arguments, ",
                       "environment, health, endpoint, start_timeout"));
  }
  return {};
}

Status Validate(const EngineChoice& engine) {
  if (engine.kind == Kind::kCommand && engine.command.empty())
    return Fail(ErrorCode::kUsage,
                "an engine of kind 'command' needs its 'command', such as "
                "[\"./server\",\"--port\",\"{port}\"]");
  if (engine.health.empty() || engine.health[0] != '/')
    return Fail(ErrorCode::kUsage,
                StrCat("'health' in 'engine' must be a path such as /health, not ", engine.health));
  if (engine.endpoint != "completions" && engine.endpoint != "chat")
    return Fail(ErrorCode::kUsage, StrCat("'endpoint' in 'engine' must be completions or chat, ",
                                          "not ", engine.endpoint));
  if (!(engine.start_timeout_s > 0))
    return Fail(ErrorCode::kUsage, "'start_timeout' in 'engine' must be above 0 seconds");
  return {};
}

// Several replicas need a port each, so the command must take it.
bool TakesPort(const EngineChoice& engine) {
  const auto names_it = [](const std::string& word) {
    return word.find("{port}") != std::string::npos;
  };
  return std::any_of(engine.command.begin(), engine.command.end(), names_it) ||
         std::any_of(engine.arguments.begin(), engine.arguments.end(), names_it) ||
         std::any_of(engine.environment.begin(), engine.environment.end(),
                     [&](const auto& variable) { return names_it(variable.second); });
}

}  // namespace

bool HasSetting(const EngineChoice& engine, const std::string& key) {
  if (key == "replicas" && engine.kind == Kind::kCommand) return TakesPort(engine);
  const SettingRow* row = FindSetting(key);
  if (!row) return false;
  const bool vllm = !row->vllm.name.empty(), llama_cpp = !row->llama_cpp.name.empty();
  switch (engine.kind) {
    case Kind::kPinion:
      return true;
    case Kind::kVllm:
      return vllm;
    case Kind::kLlamaCpp:
      return llama_cpp;
    case Kind::kCommand:
      return vllm || llama_cpp;
  }
  return false;
}

bool HasValue(const EngineChoice& engine, const SettingRow& row, const Json& value) {
  if (!HasSetting(engine, row.key)) return false;
  if (engine.kind == Kind::kVllm) return CounterpartValue(row.vllm, value).has_value();
  return engine.kind != Kind::kLlamaCpp || CounterpartValue(row.llama_cpp, value).has_value();
}

const char* Name(Kind kind) {
  switch (kind) {
    case Kind::kPinion:
      return "pinion";
    case Kind::kVllm:
      return "vllm";
    case Kind::kLlamaCpp:
      return "llama.cpp";
    case Kind::kCommand:
      return "command";
  }
  return "";
}

Result<EngineChoice> ReadEngineChoice(const Json& json) {
  EngineChoice engine;
  if (json.is_string()) {
    PINION_ASSIGN(engine.kind, ParseKind(json.string()));
  } else if (json.is_object()) {
    if (!json.Find("kind")) engine.kind = Kind::kCommand;
    for (const auto& [key, value] : json.object()) PINION_TRY(ReadKey(key, value, engine));
  } else {
    return Fail(ErrorCode::kUsage,
                StrCat("'engine' must be a name or an object, not ", json.Dump()));
  }
  PINION_TRY(Validate(engine));
  return engine;
}

Json ToJson(const EngineChoice& engine) {
  if (engine.is_pinion()) return Name(engine.kind);
  Json object = Json::MakeObject();
  object.Set("kind", Name(engine.kind));
  if (!engine.command.empty()) object.Set("command", Json(engine.command));
  if (!engine.arguments.empty()) object.Set("arguments", Json(engine.arguments));
  Json environment = Json::MakeObject();
  for (const auto& [name, value] : engine.environment) environment.Set(name, value);
  if (!engine.environment.empty()) object.Set("environment", std::move(environment));
  object.Set("health", engine.health);
  object.Set("endpoint", engine.endpoint);
  object.Set("start_timeout", engine.start_timeout_s);
  return object;
}

}  // namespace pinion::harness
