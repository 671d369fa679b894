#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/run/task.h"
#include "engine/serve/answer_writer.h"

namespace pinion {

// The answers of /v1/embeddings, /pooling, /score, /rerank and /classify, in OpenAI's and vLLM's
// form. Never a stream.
class PoolingWriter final : public AnswerWriter {
 public:
  // `facts` outlives the object.
  PoolingWriter(const GenerationRequest& request, const PoolingFacts& facts, ResponseHead head)
      : api_(request.api), wishes_(request.pooling), facts_(facts), head_(std::move(head)) {}

  std::string_view Begin(size_t, const Json&, const Usage&) override { return {}; }
  std::string_view Part(const ChoicePart&, const Usage&) override { return {}; }
  std::string_view End(const Usage&) override { return {}; }
  std::string_view Fail(const ApiError&) override { return {}; }
  // `choices`: one for each text or pair that the engine was given.
  const char* media() const override;
  HttpFields Header(const std::vector<ChoicePart>& choices, const Usage& usage) const override;
  std::string Whole(const std::vector<ChoicePart>& choices, const Usage& usage) const override;
  std::string Error(const ApiError& error) const override { return ToJson(error).Dump(); }

 private:
  std::vector<float> VectorOf(const ChoicePart& choice) const;
  // One for each pair.
  std::vector<float> ScoresOf(const std::vector<ChoicePart>& choices) const;
  void AppendVector(std::string& out, const ChoicePart& choice, const char* field) const;
  std::string Elements(const std::vector<ChoicePart>& choices) const;
  void AppendClass(std::string& out, const ChoicePart& choice) const;
  std::string LlamaList(const std::vector<ChoicePart>& choices) const;
  std::string Ranking(const std::vector<ChoicePart>& choices, const Usage& usage) const;

  const Api api_;
  const PoolingWishes wishes_;
  const PoolingFacts& facts_;
  const ResponseHead head_;
};

}  // namespace pinion
