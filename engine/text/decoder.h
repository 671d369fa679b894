#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// One step on the way from tokens back to text, fed piece by piece: the same code decodes a whole
// list and a growing one. Tokens come as Text... EndToken; text is passed on to the next stage as
// soon as nothing that follows can change it.
class DecoderStage {
 public:
  virtual ~DecoderStage() = default;
  void set_next(DecoderStage* next) { next_ = next; }
  virtual void Text(std::string_view text) = 0;  // a part of the current token
  virtual void EndToken() = 0;
  virtual void Finish() = 0;  // no token follows; passes the rest and Finish on
  // A copy in the same state, not yet linked to a next stage.
  virtual std::unique_ptr<DecoderStage> Clone() const = 0;

 protected:
  DecoderStage* next_ = nullptr;
};

using StreamMode = Tokenizer::StreamMode;

// Turns tokens into text, one at a time. Not thread-safe.
class TokenDecoder {
 public:
  explicit TokenDecoder(std::vector<std::unique_ptr<DecoderStage>> stages);
  TokenDecoder(TokenDecoder&&) noexcept;
  TokenDecoder(const TokenDecoder& other);  // continues where `other` stands
  ~TokenDecoder();
  // Text that became certain.
  std::string Push(std::string_view token);
  std::string Finish();

 private:
  class Collector;
  void LinkStages();
  std::vector<std::unique_ptr<DecoderStage>> stages_;
  std::unique_ptr<Collector> collector_;
};

// The plan that tokenizer.json's "decoder" describes. Immutable; thread-safe.
class DecoderPlan {
 public:
  // null: tokens are joined by spaces. Errors name the unknown or malformed part. Decoding cannot
  // fail, so steps that could make text grow beyond measure (Growth) are refused here.
  static Result<DecoderPlan> Make(const Json& component);
  TokenDecoder Start(StreamMode mode) const;

  struct Step {
    std::function<std::unique_ptr<DecoderStage>(StreamMode)> make;
    size_t most_times = 1;  // the factor by which a text may grow
  };

 private:
  std::vector<Step> steps_;
};

}  // namespace pinion
