#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/run/settings.h"

namespace pinion::harness {

// An engine of a race: a server of Pinion's or of another program.
struct EngineChoice {
  enum class Kind { kPinion, kVllm, kLlamaCpp, kCommand };
  Kind kind = Kind::kPinion;
  std::string name = "pinion";  // its own among the engines of a sweep
  std::string model;            // the same model in this engine's format; empty: the sweep's
  std::string binary;           // kPinion: another build's file; empty: this program
  // kCommand: the program and its arguments; kVllm, kLlamaCpp: instead of "vllm serve" and
  // "llama-server". With placeholders, see harness/engines/command.h.
  std::vector<std::string> command;
  std::vector<std::string> arguments;  // after those that the harness adds
  std::vector<std::pair<std::string, std::string>> environment;  // in addition to the harness's
  std::string health = "/health";        // answers 200 once the server accepts requests
  std::string endpoint = "completions";  // or "chat"
  double start_timeout_s = 600;
  // That all of its configurations begin with, as a candidate's: {"isa":"avx2"}.
  Json settings = Json::MakeObject();

  bool is_pinion() const { return kind == Kind::kPinion; }
  // Whether a profile, which has no room for words of the user's own, says all that it takes to
  // start it.
  bool fits_profile() const {
    return is_pinion() && arguments.empty() && environment.empty() && model.empty();
  }
};

// Everything that is decided by an engine's kind, but for how its command is made
// (harness/engines/command.cc).
struct EngineRow {
  EngineChoice::Kind kind;
  const char* name;                  // in definitions and of --engine
  std::vector<std::string> program;  // that starts it, in whose place 'command' may stand; empty:
                                     // ours, or the command itself
  // Its counterparts of our settings; null: all of them, or a command's placeholders.
  Counterpart SettingRow::*counterpart = nullptr;
  bool binds_memory = false;  // by itself, to the nodes of its CPUs
};
const std::vector<EngineRow>& EngineRows();
const EngineRow& RowOf(EngineChoice::Kind kind);
std::vector<std::string> EngineNames();     // of all rows
const char* Name(EngineChoice::Kind kind);  // of its row

// Whether the engine has a counterpart of a setting (engine/run/settings.h). `command` has those
// whose placeholders are in its words, and, even without them, those that vLLM or llama.cpp have,
// but for replicas.
bool HasSetting(const EngineChoice& engine, const std::string& key);
// The same for one value of it: llama.cpp has no int8 KV cache like ours.
bool HasValue(const EngineChoice& engine, const SettingRow& row, const Json& value);

// "vllm", or
// {"name":"mine","engine":"command","command":["./server","--port","{port}"],"model":DIR,
// "binary":FILE,"arguments":[],"environment":{"NAME":"value"},"health":"/health","endpoint":"chat",
// "start_timeout":"5m"}. Without a name it has that of "engine", which is "command" if there is
// one, else "pinion". Errors (kUsage) name the key.
Result<EngineChoice> ReadEngineChoice(const Json& json);
Json ToJson(const EngineChoice& engine);

}  // namespace pinion::harness
