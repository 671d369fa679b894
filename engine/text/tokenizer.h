#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion {

// Decoding in progress: each Push returns the text that became certain, Finish the rest. Must not
// outlive its tokenizer. Not thread-safe.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  virtual std::string Push(int32_t id) = 0;
  virtual std::string Finish() = 0;
  // A second stream that continues from here.
  virtual std::unique_ptr<TokenStream> Clone() const = 0;
};

// The input of a model that reads one text or a pair of them: ids and, for each, the type that the
// tokenizer gives it (0 or 1: which text it belongs to, if the model tells them apart).
struct Encoding {
  std::vector<int32_t> ids, types;
};

// Text <-> token ids. Immutable after loading; thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // UTF-8 text (invalid bytes are replaced by U+FFFD first). add_special_tokens applies the
  // post-processor (BOS and the like). Special tokens written in the text are always recognised.
  virtual Result<std::vector<int32_t>> Encode(std::string_view text,
                                              bool add_special_tokens) const = 0;
  // A text, or two that the model reads as a pair (query and document), with special tokens, for
  // models that read them whole (encoders). Tokens beyond max_tokens are cut off the end of the
  // text; of a pair, off the longer one until both are equally long. Errors: Encode's, a max_tokens
  // that special tokens alone exceed, a tokenizer that does not say how it joins a pair.
  virtual Result<Encoding> EncodeWhole(std::string_view text,
                                       std::optional<std::string_view> second,
                                       size_t max_tokens) const;
  // Ids outside the vocabulary are skipped.
  virtual std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens) const = 0;
  // Decode for a growing list. Eager: text comes as soon as a reader may see it, even if a run of
  // byte tokens could yet prove invalid, in which case Decode would replace all of it by U+FFFD.
  // Exact: such a run is held until it ends. The default implementation decodes the whole list at
  // each step.
  enum class StreamMode { kEager, kExact };
  virtual std::unique_ptr<TokenStream> Stream(bool skip_special_tokens, StreamMode mode) const;
  // The token as the vocabulary writes it ("Ġthe"), "" if unknown.
  virtual std::string TokenText(int32_t id) const = 0;
  virtual std::optional<int32_t> TokenId(std::string_view token) const = 0;
  virtual bool is_special(int32_t id) const = 0;
  virtual size_t vocabulary_size() const = 0;  // highest id + 1

  // From tokenizer_config.json (and special_tokens_map.json): "bos_token" -> "<s>", ...
  const std::map<std::string, std::string>& special_tokens() const { return special_tokens_; }
  // chat_template.jinja, or tokenizer_config.json's "chat_template" (of a list, the one named
  // "default"), or chat_template.json's; unset if the model has none.
  const std::optional<std::string>& chat_template() const { return chat_template_; }
  // The one for conversations with tools: of a list, that named "tool_use", else the same.
  const std::optional<std::string>& tool_template() const {
    return tool_template_ ? tool_template_ : chat_template_;
  }
  // Another one in the place of both; before any other thread uses the tokenizer.
  void SetChatTemplate(std::string text) {
    chat_template_ = std::move(text);
    tool_template_.reset();
  }

 protected:
  std::map<std::string, std::string> special_tokens_;
  std::optional<std::string> chat_template_, tool_template_;
};

// From a model folder: tokenizer.json, else vocab.json + merges.txt, else tokenizer.model.
Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& folder);
// From parsed files (config may be null), as for presets.
Result<std::unique_ptr<Tokenizer>> MakeTokenizer(const Json& tokenizer_json,
                                                 const Json& tokenizer_config);

// Turns a growing list of ids into text that never cuts a character: each Push returns what became
// certain, Flush the rest (an incomplete tail becomes U+FFFD). The concatenation equals the tail of
// Decode(prompt + ids, skip_special_tokens) after the prompt's text; in eager mode, unless a run of
// byte tokens was invalid.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, std::span<const int32_t> prompt_ids,
                bool skip_special_tokens = true,
                Tokenizer::StreamMode mode = Tokenizer::StreamMode::kEager);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder(const StreamDecoder& other);  // continues where `other` stands
  std::string Push(int32_t id);
  std::string Flush();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A prompt as its decoders have seen it: several outputs continue it without reading it again.
// Immutable; must not outlive its tokenizer.
class PrimedText {
 public:
  // `whole`: OutputText::whole() will be asked for, which takes a second, exact decoder.
  PrimedText(const Tokenizer& tokenizer, std::span<const int32_t> prompt_ids,
             bool skip_special_tokens, bool whole);

 private:
  friend class OutputText;
  StreamDecoder decoder_;
  std::optional<StreamDecoder> exact_decoder_;
};

// A request's output text with its stop strings: text that may become a stop string is held back.
class OutputText {
 public:
  OutputText(const PrimedText& prompt, std::vector<std::string> stop, bool include_stop,
             size_t min_tokens);
  // Text that is now final. Once stopped() is true the rest is dropped and the caller ends the
  // request; stop_string() is what matched.
  std::string Push(int32_t id);
  std::string Finish();
  // After the end, if the prompt was primed for it: the whole text, for an answer that was not
  // streamed. It is the released text, but exact (StreamMode) unless a stop string cut it.
  const std::string& whole() const { return stopped_ ? released_ : exact_text_; }
  bool stopped() const { return stopped_; }
  const std::string& stop_string() const { return stop_string_; }

 private:
  std::string Release(bool at_end);
  StreamDecoder decoder_;
  std::optional<StreamDecoder> exact_decoder_;  // set if whole() will be asked for
  std::vector<std::string> stop_;
  bool include_stop_;
  size_t min_tokens_, pushed_ = 0;
  std::string held_;
  std::string released_, exact_text_;  // kept only for whole()
  bool stopped_ = false;
  std::string stop_string_;
};

}  // namespace pinion
