#include "engine/serve/answer_writer.h"

#include <utility>

#include "engine/serve/cohere_writer.h"
#include "engine/serve/event_writer.h"
#include "engine/serve/llama_writer.h"
#include "engine/serve/message_writer.h"
#include "engine/serve/pooling_writer.h"
#include "engine/serve/response_writer.h"

namespace pinion {
namespace {

// Completions and chat completions.
class OpenAiWriter final : public AnswerWriter {
 public:
  OpenAiWriter(const GenerationRequest& request, ResponseHead head)
      : head_(std::move(head)),
        events_(head_),
        usage_last_(request.include_usage),
        usage_in_parts_(request.usage_in_parts) {}

  std::string_view Begin(size_t index, const Json& prompt_token_ids, const Usage& usage) override {
    if (!head_.chat) return {};
    return events_.Role(index, prompt_token_ids, usage_in_parts_ ? &usage : nullptr);
  }
  std::string_view Part(const ChoicePart& part, const Usage& usage) override {
    return events_.Part(part, usage_in_parts_ ? &usage : nullptr);
  }
  std::string_view End(const Usage& usage) override {
    last_ = usage_last_ ? std::string(events_.UsageOf(usage)) : "";
    return last_ += kSseDone;
  }
  std::string_view Fail(const ApiError& error) override {
    return last_ = SseEvent(ToJson(error)) + kSseDone;
  }
  std::string Whole(const std::vector<ChoicePart>& choices, const Usage& usage) const override {
    return WholeResponse(head_, choices, usage).Dump();
  }
  std::string Error(const ApiError& error) const override { return ToJson(error).Dump(); }

 private:
  ResponseHead head_;
  EventWriter events_;
  bool usage_last_, usage_in_parts_;
  std::string last_;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeAnswerWriter(const GenerationRequest& request,
                                               ResponseHead head) {
  const PoolingFacts* facts = request.pooling.facts;
  if (request.api == Api::kCohereEmbed)
    return std::make_unique<CohereWriter>(request, *facts, std::move(head));
  if (facts) return std::make_unique<PoolingWriter>(request, *facts, std::move(head));
  switch (request.api) {
    case Api::kMessages:
      return std::make_unique<MessageWriter>(std::move(head));
    case Api::kResponses:
      return std::make_unique<ResponseWriter>(request, std::move(head));
    case Api::kLlama:
    case Api::kInfill:
      return std::make_unique<LlamaWriter>(request, std::move(head));
    default:
      break;
  }
  return std::make_unique<OpenAiWriter>(request, std::move(head));
}

}  // namespace pinion
