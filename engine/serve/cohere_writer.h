#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/run/task.h"
#include "engine/serve/answer_writer.h"

namespace pinion {

// The answers of /v2/embed in Cohere's form: each type of vectors that was asked for, and the
// texts. Never a stream.
class CohereWriter final : public AnswerWriter {
 public:
  // `facts` outlives the object.
  CohereWriter(const GenerationRequest& request, const PoolingFacts& facts, ResponseHead head)
      : wishes_(request.pooling), facts_(facts), head_(std::move(head)) {}

  std::string_view Begin(size_t, const Json&, const Usage&) override { return {}; }
  std::string_view Part(const ChoicePart&, const Usage&) override { return {}; }
  std::string_view End(const Usage&) override { return {}; }
  std::string_view Fail(const ApiError&) override { return {}; }
  std::string Whole(const std::vector<ChoicePart>& choices, const Usage& usage) const override;
  std::string Error(const ApiError& error) const override { return ToJson(error).Dump(); }

 private:
  const PoolingWishes wishes_;
  const PoolingFacts& facts_;
  const ResponseHead head_;
};

}  // namespace pinion
