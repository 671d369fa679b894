// Text of growing token lists: StreamDecoder and, with stop strings, OutputText.

#include <algorithm>
#include <utility>

#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"

namespace pinion {
namespace {

// Works for any tokenizer: decodes all tokens so far and returns the part that is new, without an
// end that later tokens may change (an incomplete character shows as U+FFFD).
class RedecodingStream : public TokenStream {
 public:
  RedecodingStream(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  std::string Push(int32_t id) override {
    ids_.push_back(id);
    std::string text = tokenizer_.Decode(ids_, skip_special_);
    size_t end = text.size();
    while (end >= 3 && std::string_view(text).substr(end - 3, 3) == kReplacementUtf8) end -= 3;
    return Take(text, end);
  }
  std::string Finish() override {
    const std::string text = tokenizer_.Decode(ids_, skip_special_);
    return Take(text, text.size());
  }
  std::unique_ptr<TokenStream> Clone() const override {
    return std::make_unique<RedecodingStream>(*this);
  }

 private:
  std::string Take(const std::string& text, size_t end) {
    if (end <= given_) return {};
    return text.substr(std::exchange(given_, end), end - given_);
  }

  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::vector<int32_t> ids_;
  size_t given_ = 0;  // bytes
};

}  // namespace

std::unique_ptr<TokenStream> Tokenizer::Stream(bool skip_special_tokens, StreamMode) const {
  return std::make_unique<RedecodingStream>(*this, skip_special_tokens);
}

struct StreamDecoder::State {
  std::unique_ptr<TokenStream> stream;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, std::span<const int32_t> prompt_ids,
                             bool skip_special_tokens, Tokenizer::StreamMode mode)
    : state_(std::make_unique<State>()) {
  state_->stream = tokenizer.Stream(skip_special_tokens, mode);
  // The prompt's last token may end inside a character, so the stream has to see the prompt too.
  for (int32_t id : prompt_ids) state_->stream->Push(id);
}

StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder::StreamDecoder(const StreamDecoder& other)
    : state_(std::make_unique<State>(State{other.state_->stream->Clone()})) {}

std::string StreamDecoder::Push(int32_t id) { return state_->stream->Push(id); }
std::string StreamDecoder::Flush() { return state_->stream->Finish(); }

PrimedText::PrimedText(const Tokenizer& tokenizer, std::span<const int32_t> prompt_ids,
                       bool skip_special_tokens, bool whole)
    : decoder_(tokenizer, prompt_ids, skip_special_tokens) {
  if (whole)
    exact_decoder_.emplace(tokenizer, prompt_ids, skip_special_tokens,
                           Tokenizer::StreamMode::kExact);
}

OutputText::OutputText(const PrimedText& prompt, std::vector<std::string> stop, bool include_stop,
                       size_t min_tokens)
    : decoder_(prompt.decoder_),
      exact_decoder_(prompt.exact_decoder_),
      stop_(std::move(stop)),
      include_stop_(include_stop),
      min_tokens_(min_tokens) {
  std::erase(stop_, "");
}

std::string OutputText::Push(int32_t id) {
  if (stopped_) return {};
  ++pushed_;
  held_ += decoder_.Push(id);
  if (exact_decoder_) exact_text_ += exact_decoder_->Push(id);
  return Release(/*at_end=*/false);
}

std::string OutputText::Finish() {
  if (stopped_) return {};
  held_ += decoder_.Flush();
  if (exact_decoder_) exact_text_ += exact_decoder_->Flush();
  return Release(/*at_end=*/true);
}

std::string OutputText::Release(bool at_end) {
  size_t first = held_.npos, keep = 0;
  for (const std::string& stop : stop_) {
    // Text of the first min_tokens tokens cannot end a request.
    const size_t found = pushed_ > min_tokens_ ? held_.find(stop) : held_.npos;
    if (found < first) {
      first = found;
      stop_string_ = stop;
    }
    // Hold back the longest end that may be the beginning of a stop string.
    size_t tail = std::min(stop.size() - 1, held_.size());
    while (tail > keep && held_.compare(held_.size() - tail, tail, stop, 0, tail) != 0) --tail;
    keep = std::max(keep, tail);
  }
  if (first != held_.npos) {
    stopped_ = true;
    std::string text = held_.substr(0, first + (include_stop_ ? stop_string_.size() : 0));
    held_.clear();
    if (exact_decoder_) released_ += text;
    return text;
  }
  std::string text = held_.substr(0, held_.size() - (at_end ? 0 : keep));
  held_.erase(0, text.size());
  if (exact_decoder_) released_ += text;
  return text;
}

}  // namespace pinion
