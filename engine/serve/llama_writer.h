#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/serve/answer_writer.h"

namespace pinion {

// llama-server's /completion and /infill: of a stream one object for each text, and a last one for
// each prompt that has the counts, why it stopped, and timings. A whole answer is that object, or a
// list of them if there are several prompts.
class LlamaWriter final : public AnswerWriter {
 public:
  LlamaWriter(const GenerationRequest& request, ResponseHead head);

  std::string_view Begin(size_t index, const Json& prompt_token_ids, const Usage& usage) override;
  std::string_view Part(const ChoicePart& part, const Usage& usage) override;
  std::string_view End(const Usage& usage) override;
  std::string_view Fail(const ApiError& error) override;
  std::string Whole(const std::vector<ChoicePart>& choices, const Usage& usage) const override;
  std::string Error(const ApiError& error) const override;

 private:
  Json Text(const ChoicePart& part) const;
  Json Last(const ChoicePart& part, bool has_new_line) const;

  ResponseHead head_;
  Json settings_;
  std::string events_;
  std::set<size_t> with_new_line_;  // choices of a stream whose text has one
};

}  // namespace pinion
