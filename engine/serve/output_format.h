#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion {

// A call of a tool as a model wrote it. `arguments`: the text of a JSON object.
struct ToolCall {
  std::string name, arguments;
  bool operator==(const ToolCall&) const = default;
};

// The names of a request's tools, and which of their parameters are strings, for readers of calls.
// Immutable.
class KnownTools {
 public:
  explicit KnownTools(const Json& tools);  // the request's `tools`
  bool Has(const std::string& tool) const { return text_.contains(tool); }
  // Whether `text` begins with a tool's name and a bracket or brace behind it, as far as it has
  // come.
  bool MayBegin(std::string_view text) const;
  // Whether a value that is written without quotes is a string, whatever it looks like; so are
  // values of parameters that the schema does not have.
  bool IsText(const std::string& tool, const std::string& parameter) const;
  size_t bytes() const { return bytes_; }  // what it holds in memory, about

 private:
  std::map<std::string, std::set<std::string>> text_, others_;  // parameters by tool
  size_t bytes_ = 0;
};

class CallBody;  // of call_body.h

// How a family of models writes calls: `begin`, a body, `end`, as often as it likes.
struct CallFormat {
  std::string_view name;         // vLLM's, of --tool-call-parser
  std::string_view in_template;  // what a chat template has that asks for this format
  std::string_view begin, end;   // end empty: the body goes on to the end of the text
  bool json = false;             // `end` inside a string of the body ends nothing
  char bare = 0;                 // an answer that begins with it is a body, too; 0: none is
  // Reads a body as it arrives. If the body has `json` within, this finds its end as well.
  std::unique_ptr<CallBody> (*make_body)(const KnownTools& tools) = nullptr;
  bool harmony = false;  // of harmony_parser.h, which has no use for marks and bodies
};

// How a family of models sets its reasoning apart from the answer, which it precedes.
struct ThoughtFormat {
  std::string_view name;  // vLLM's, of --reasoning-parser
  std::string_view begin, end;
  bool special_tokens = false;
  bool harmony = false;
};

// The formats that the front end looks for in the answers of a model; null: none.
struct OutputFormat {
  const CallFormat* calls = nullptr;
  const ThoughtFormat* thoughts = nullptr;
};

// `calls` and `thoughts` are names of formats, "auto" (what the model's chat template asks for) or
// "none". Another name is an error of kind kUsage that lists them; a template may be missing.
Result<OutputFormat> ChooseOutputFormat(const std::string& calls, const std::string& thoughts,
                                        const std::optional<std::string>& chat_template);

// Complete bodies of JSON, in tool_json.cc: their calls, or nothing if they are a part of the text.
using ReadCalls = std::optional<std::vector<ToolCall>>(std::string_view body, const KnownTools&);
// {"name": ..., "arguments": {...}}
ReadCalls ReadHermesCalls;
// {"name": ..., "parameters": {...}}, several of them with ';' between; only tools of the request.
ReadCalls ReadLlamaCalls;
// A list of what Hermes has one of.
ReadCalls ReadCallList;
// The same, or NAME{...}, NAME[ARGS]{...} with [TOOL_CALLS] between.
ReadCalls ReadMistralCalls;

}  // namespace pinion
