#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/run/settings.h"

namespace pinion::harness {

// The engine that a trial measures: a server of Pinion's or of another program.
struct EngineChoice {
  enum class Kind { kPinion, kVllm, kLlamaCpp, kCommand };
  Kind kind = Kind::kPinion;
  // kCommand: the program and its arguments; the others: instead of "vllm serve" and
  // "llama-server". With placeholders, see harness/engines/command.h.
  std::vector<std::string> command;
  std::vector<std::string> arguments;  // after those that the harness adds
  std::vector<std::pair<std::string, std::string>> environment;  // in addition to the harness's
  std::string health = "/health";        // answers 200 once the server accepts requests
  std::string endpoint = "completions";  // or "chat"
  double start_timeout_s = 600;

  bool is_pinion() const { return kind == Kind::kPinion; }
};
const char* Name(EngineChoice::Kind kind);  // "pinion", "vllm", "llama.cpp", "command"

// Whether the engine has a counterpart of a setting (engine/run/settings.h). `command` has those
// that vLLM or llama.cpp have, as placeholders, whether they are used or not; without {port} it has
// no replicas.
bool HasSetting(const EngineChoice& engine, const std::string& key);
// The same for one value of it: llama.cpp has no int8 KV cache like ours.
bool HasValue(const EngineChoice& engine, const SettingRow& row, const Json& value);

// "vllm", or {"kind":"command","command":["./server","--port","{port}"],"arguments":[],
// "environment":{"NAME":"value"},"health":"/health","endpoint":"chat","start_timeout":"5m"}.
// Errors (kUsage) name the key.
Result<EngineChoice> ReadEngineChoice(const Json& json);
Json ToJson(const EngineChoice& engine);

}  // namespace pinion::harness
