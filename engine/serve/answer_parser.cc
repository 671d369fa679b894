#include "engine/serve/answer_parser.h"

#include <utility>

#include "engine/serve/forced_parser.h"
#include "engine/serve/harmony_parser.h"
#include "engine/serve/output_parser.h"

namespace pinion {

void ParsedOutput::AddArguments(std::string_view text) {
  if (text.empty()) return;
  if (calls.empty()) calls.emplace_back();
  calls.back().arguments += text;
}

void ParsedOutput::Append(ParsedOutput next) {
  content += next.content;
  reasoning += next.reasoning;
  for (ToolCall& call : next.calls)
    if (call.name.empty())
      AddArguments(call.arguments);
    else
      calls.push_back(std::move(call));
}

std::unique_ptr<AnswerParser> MakeAnswerParser(OutputRules rules) {
  if (!rules.any()) return nullptr;
  if (rules.forced) return std::make_unique<ForcedParser>(std::move(rules));
  if ((rules.calls && rules.calls->harmony) || (rules.thoughts && rules.thoughts->harmony))
    return std::make_unique<HarmonyParser>(std::move(rules));
  return std::make_unique<OutputParser>(std::move(rules));
}

}  // namespace pinion
