#include "engine/serve/kept_memory.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "engine/serve/beam_search.h"
#include "engine/serve/request_memory.h"
#include "engine/serve/response.h"

namespace pinion {
namespace {

// The memory that is held until the answer ends.
size_t KeptBytes(const Prepared& prepared) {
  size_t bytes = 4096;                         // decoders, parameters, the answer's head
  bytes += 2 * prepared.request.shown.size();  // the writer has a copy
  const size_t shown = prepared.request.return_token_ids
                           ? kTokenIdBytes * static_cast<size_t>(prepared.request.n)
                           : 0;
  for (const auto& prompt : prepared.prompts) bytes += prompt.size() * (sizeof(int32_t) + shown);
  for (const auto& types : prepared.types) bytes += types.size() * sizeof(int32_t);
  if (const PoolingFacts* facts = prepared.request.pooling.facts)
    bytes += prepared.prompts.size() * (facts->width * sizeof(float) + 256);
  for (const std::string& text : prepared.request.pooling.documents) bytes += 2 * text.size();
  const ThoughtRules& thought = prepared.request.params.thought;
  bytes += prepared.prompts.size() * thought.blank.size() * sizeof(int32_t);
  if (const auto& grammar = prepared.request.grammar)
    bytes += grammar->text.size() * (1 + prepared.prompts.size());
  if (const auto& tools = prepared.request.output.tools) bytes += tools->bytes();
  for (const std::string& echo : prepared.echoes)
    bytes += echo.size() * static_cast<size_t>(1 + prepared.request.n);
  return bytes;
}

}  // namespace

ApiResult<void> KeepWhatIsNeeded(MemoryShare& memory, const Prepared& prepared, const char* what) {
  const size_t kept = KeptBytes(prepared);
  memory.ShrinkTo(kept);
  if (kept > memory.bytes()) PINION_TRY(Reserve(memory, kept - memory.bytes(), what));
  return {};
}

size_t PromptLogprobBytes(const Prepared& prepared) {
  const GenerationRequest& request = prepared.request;
  if (request.params.prompt_logprobs < 0) return 0;
  size_t tokens = 0;
  for (const auto& prompt : prepared.prompts) tokens += prompt.size();
  // The alternatives, and the token itself, which they may lack.
  const auto entries = size_t{2} + static_cast<size_t>(request.params.prompt_logprobs);
  const size_t lists = (request.echo && !request.chat && request.params.logprobs >= 0 ? 1 : 0) +
                       (request.prompt_logprobs >= 0 ? 1 : 0);
  return tokens * entries * lists * static_cast<size_t>(request.n) * kLogprobBytes;
}

size_t BeamBytes(const Prepared& prepared) {
  const GenerationRequest& request = prepared.request;
  if (!request.beam) return 0;
  const auto width = static_cast<size_t>(request.n);
  const auto max_tokens = static_cast<size_t>(request.params.max_tokens);
  const auto kept_top = static_cast<size_t>(std::max(0, request.params.logprobs));
  // A round's prompts, until the engine has read them.
  size_t round_tokens = 0;
  for (const auto& prompt : prepared.prompts) round_tokens += prompt.size() + max_tokens;
  return prepared.prompts.size() * BeamSearch::MostBytes(width, max_tokens, kept_top) +
         width * round_tokens * sizeof(int32_t);
}

}  // namespace pinion
