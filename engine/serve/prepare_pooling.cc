// The preparer's requests whose answers are vectors or scores.

#include <utility>

#include "engine/serve/field_readers.h"
#include "engine/serve/kept_memory.h"
#include "engine/serve/prepare.h"
#include "engine/serve/schema_pooling.h"

namespace pinion {

// The conversation of a request for vectors as the text that is read.
ApiResult<void> Preparer::WriteConversation(GenerationRequest& asked,
                                            const RenderChat& render) const {
  if (!std::exchange(asked.chat, false)) return {};
  if (!tokenizer_.chat_template() && asked.conversation.own_template.empty())
    return Bad("messages",
               "'messages' needs a model with a chat template, which this one does "
               "not have; put the text into 'input'");
  TokenizeRequest written;
  written.conversation = std::move(asked.conversation);
  PINION_ASSIGN(asked.prompts.emplace_back(), intake_.ApplyTemplate(std::move(written), render));
  return {};
}

ApiResult<Prepared> Preparer::Pooling(HttpRequest& request, Api api, size_t max_model_len,
                                      const RenderChat& render, const OnTimeout& on_timeout) const {
  Prepared prepared;
  {
    PINION_ASSIGN(const Json body, ReadBody(request, api, prepared.unknown_fields));
    PINION_ASSIGN(prepared.request, ReadPoolingRequest(api, body));
  }
  GenerationRequest& asked = prepared.request;
  asked.pooling.facts = &model_.pooling;
  if (asked.timeout_s) on_timeout(*asked.timeout_s);
  PINION_TRY(CheckPriority(asked.priority));
  PINION_TRY(WriteConversation(asked, render));
  PINION_ASSIGN(auto texts, pooling_intake_.Prepare(asked, max_model_len, request.memory));
  for (Encoding& text : texts) {
    prepared.primed.emplace_back(tokenizer_, std::vector<int32_t>(), true, /*whole=*/false);
    prepared.types.push_back(std::move(text.types));
    prepared.prompts.push_back(std::move(text.ids));
  }
  asked.params.max_tokens = 1;  // as if one token were generated, which none is
  PINION_TRY(CheckChoices(prepared, /*kv_tokens=*/0));
  asked.prompts.clear();
  PINION_TRY(KeepWhatIsNeeded(request.memory, prepared, "the texts' vectors"));
  prepared.memory = std::move(request.memory);
  return prepared;
}

}  // namespace pinion
