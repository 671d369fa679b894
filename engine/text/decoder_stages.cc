#include "engine/text/decoder_stages.h"

#include <algorithm>
#include <optional>

#include "engine/text/component.h"
#include "engine/text/utf8.h"

namespace pinion {
namespace {

// Adds Clone to a stage whose members can be copied.
template <typename Self, typename Base>
class Cloning : public Base {
 public:
  std::unique_ptr<DecoderStage> Clone() const override {
    return std::make_unique<Self>(static_cast<const Self&>(*this));
  }
};

// Passes text on; the base of stages, most of which change only some of this.
class Stage : public DecoderStage {
 public:
  void Text(std::string_view text) override { next_->Text(text); }
  void EndToken() override { next_->EndToken(); }
  void Finish() override { next_->Finish(); }
};

// For stages that must see a whole token.
class TokenStage : public Stage {
 public:
  void Text(std::string_view text) override { token_ += text; }
  void EndToken() override {
    Token(token_);
    token_.clear();
  }

 protected:
  virtual void Token(const std::string& token) = 0;
  void Emit(std::string_view token) {
    next_->Text(token);
    next_->EndToken();
  }

 private:
  std::string token_;
};

// Two bytes of a surrogate spelt as a character of three. They are invalid already, but incremental
// decoders, the reference's among them, take the three bytes together.
bool BeginsSurrogate(std::string_view bytes) {
  return bytes.size() == 2 && bytes[0] == '\xED' && (bytes[1] & 0xE0) == 0xA0;
}

// Removes the complete characters at the front of `bytes` and returns them as valid text.
std::string TakeCharacters(std::string& bytes) {
  std::string text;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const Utf8Step step = DecodeUtf8(rest);
    if (step.kind == Utf8Step::Kind::kIncomplete || BeginsSurrogate(rest)) break;
    text += step.kind == Utf8Step::Kind::kValid ? rest.substr(0, step.length) : kReplacementUtf8;
    rest.remove_prefix(step.length);
  }
  bytes.erase(0, bytes.size() - rest.size());
  return text;
}

class ByteLevel : public Cloning<ByteLevel, TokenStage> {
 public:
  void Finish() override {
    next_->Text(SanitizeUtf8(pending_));
    next_->EndToken();
    next_->Finish();
  }

 private:
  void Token(const std::string& token) override {
    if (!CharactersToBytes(token, pending_)) pending_ += token;
    const std::string text = TakeCharacters(pending_);
    if (!text.empty()) next_->Text(text);
  }
  std::string pending_;  // the bytes of an incomplete character
};

class ByteFallbackExact : public Cloning<ByteFallbackExact, TokenStage> {
 public:
  void Finish() override {
    EndRun();
    next_->Finish();
  }

 private:
  void Token(const std::string& token) override {
    if (const auto byte = ByteOfToken(token)) {
      run_ += *byte;
      return;
    }
    EndRun();
    Emit(token);
  }
  void EndRun() {
    if (run_.empty()) return;
    if (IsValidUtf8(run_))
      Emit(run_);
    else
      for (size_t i = 0; i < run_.size(); ++i) Emit(kReplacementUtf8);
    run_.clear();
  }
  std::string run_;
};

// Passes on each character of a run with its last byte. If the run later turns out to be invalid,
// these cannot be taken back: only the rest becomes U+FFFD.
class ByteFallbackEager : public Cloning<ByteFallbackEager, TokenStage> {
 public:
  void Finish() override {
    EndRun();
    next_->Finish();
  }

 private:
  void Token(const std::string& token) override {
    if (const auto byte = ByteOfToken(token)) {
      in_run_ = true;
      pending_ += *byte;
      Advance();
      return;
    }
    EndRun();
    Emit(token);
  }
  void Advance() {
    const Utf8Step step = DecodeUtf8(pending_);
    // One invalid byte makes the rest of the run invalid, too.
    if (!broken_ && step.kind == Utf8Step::Kind::kIncomplete) return;
    if (!broken_ && step.kind == Utf8Step::Kind::kValid) {
      next_->Text(pending_);
      pending_.clear();
    } else {
      broken_ = true;
      ReplacePending();
    }
  }
  void ReplacePending() {
    for (size_t i = 0; i < pending_.size(); ++i) next_->Text(kReplacementUtf8);
    pending_.clear();
  }
  void EndRun() {
    if (!in_run_) return;
    ReplacePending();
    next_->EndToken();
    in_run_ = broken_ = false;
  }
  std::string pending_;  // the bytes of an incomplete character
  bool in_run_ = false, broken_ = false;
};

class MetaspaceDecoder : public Cloning<MetaspaceDecoder, Stage> {
 public:
  explicit MetaspaceDecoder(const Metaspace& metaspace) : metaspace_(metaspace) {}
  void Text(std::string_view text) override {
    const std::string& mark = metaspace_.replacement;
    // The marks of the first token stand for the space that encoding prepended.
    const bool drop = first_ && metaspace_.prepend != Metaspace::Prepend::kNever;
    std::string spaced;
    for (size_t at = 0; at < text.size();) {
      const size_t found = std::min(text.find(mark, at), text.size());
      spaced += text.substr(at, found - at);
      at = found;
      if (found == text.size()) break;
      if (!drop) spaced += ' ';
      at += mark.size();
    }
    next_->Text(spaced);
  }
  void EndToken() override {
    first_ = false;
    next_->EndToken();
  }

 private:
  Metaspace metaspace_;
  bool first_ = true;
};

class Fuse : public Cloning<Fuse, Stage> {
 public:
  void EndToken() override {}
  void Finish() override {
    next_->EndToken();
    next_->Finish();
  }
};

class Strip : public Cloning<Strip, Stage> {
 public:
  Strip(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop), left_(start) {}
  void Text(std::string_view text) override {
    while (left_ > 0 && !text.empty()) {
      const bool cut = text.substr(0, content_.size()) == content_;
      left_ = cut ? left_ - 1 : 0;
      if (cut) text.remove_prefix(content_.size());
    }
    if (stop_ == 0) return next_->Text(text);
    held_ += text;
    size_t keep = 0;  // copies of content at the end: removed unless text follows
    std::string_view body = held_;
    while (keep < stop_ && body.size() >= content_.size() &&
           body.substr(body.size() - content_.size()) == content_) {
      body.remove_suffix(content_.size());
      ++keep;
    }
    next_->Text(body);
    held_.erase(0, body.size());
  }
  void EndToken() override {
    held_.clear();
    left_ = start_;
    next_->EndToken();
  }

 private:
  std::string content_;
  size_t start_, stop_;
  size_t left_;  // how many may still be cut off the start of this token
  std::string held_;
};

class ReplacePattern : public Cloning<ReplacePattern, TokenStage> {
 public:
  ReplacePattern(std::shared_ptr<const Regex> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

 private:
  void Token(const std::string& token) override {
    // If the pattern gives up on a token, the token stays unchanged: decoding cannot fail.
    const Growth growth("decoder", "bytes", token.size());
    Emit(ReplaceAll(token, *pattern_, content_, growth).value_or(token));
  }
  std::shared_ptr<const Regex> pattern_;
  std::string content_;
};

class ReplaceLiteral : public Cloning<ReplaceLiteral, Stage> {
 public:
  ReplaceLiteral(std::string literal, std::string content)
      : literal_(std::move(literal)), content_(std::move(content)) {}
  void Text(std::string_view text) override {
    held_ += text;
    std::string out;
    size_t at = 0;
    for (size_t found; (found = held_.find(literal_, at)) != held_.npos;) {
      out.append(held_, at, found - at).append(content_);
      at = found + literal_.size();
    }
    // Hold back the longest end that may be the beginning of a match.
    size_t keep = std::min(literal_.size() - 1, held_.size() - at);
    while (keep > 0 && held_.compare(held_.size() - keep, keep, literal_, 0, keep) != 0) --keep;
    out.append(held_, at, held_.size() - keep - at);
    held_.erase(0, held_.size() - keep);
    next_->Text(out);
  }
  void EndToken() override {
    next_->Text(held_);
    held_.clear();
    next_->EndToken();
  }

 private:
  std::string literal_, content_;
  std::string held_;  // may be the start of a match
};

class Suffix : public Cloning<Suffix, TokenStage> {
 public:
  explicit Suffix(std::string suffix) : suffix_(std::move(suffix)) {}
  void Finish() override {
    Release("");
    next_->Finish();
  }

 private:
  void Token(const std::string& token) override {
    // The suffix of the token before becomes a space only now that another token follows.
    Release(" ");
    const size_t found = std::min(token.find(suffix_), token.size());
    next_->Text(std::string_view(token).substr(0, found));
    held_ = token.substr(found);
    open_ = true;
  }
  void Release(std::string_view content) {
    if (!open_) return;
    for (size_t at = 0; (at = held_.find(suffix_, at)) != held_.npos; at += content.size())
      held_.replace(at, suffix_.size(), content);
    Emit(held_);
    open_ = false;
  }
  std::string suffix_, held_;
  bool open_ = false;
};

// Replacements of the reference, in this order.
constexpr std::pair<std::string_view, std::string_view> kCleanups[] = {
    {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
    {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
    {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

class WordPieces : public Cloning<WordPieces, TokenStage> {
 public:
  WordPieces(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}

 private:
  void Token(const std::string& token) override {
    std::string text = token;
    if (!std::exchange(first_, false)) {
      if (token.rfind(prefix_, 0) == 0)
        text.erase(0, prefix_.size());
      else
        text.insert(0, " ");
    }
    if (cleanup_)
      for (const auto& [dirty, clean] : kCleanups)
        for (size_t at = 0; (at = text.find(dirty, at)) != text.npos; at += clean.size())
          text.replace(at, dirty.size(), clean);
    Emit(text);
  }
  std::string prefix_;
  bool cleanup_, first_ = true;
};

class JoinBySpace : public Cloning<JoinBySpace, Stage> {
 public:
  void EndToken() override {
    ended_ = true;
    next_->EndToken();
  }
  void Text(std::string_view text) override {
    if (std::exchange(ended_, false)) next_->Text(" ");
    next_->Text(text);
  }

 private:
  bool ended_ = false;
};

}  // namespace

std::optional<char> ByteOfToken(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return std::nullopt;
  int value = 0;
  for (char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<char>(value);
}

std::unique_ptr<DecoderStage> ByteLevelStage() { return std::make_unique<ByteLevel>(); }
std::unique_ptr<DecoderStage> ByteFallbackStage(StreamMode mode) {
  if (mode == StreamMode::kEager) return std::make_unique<ByteFallbackEager>();
  return std::make_unique<ByteFallbackExact>();
}
std::unique_ptr<DecoderStage> MetaspaceStage(const Metaspace& metaspace) {
  return std::make_unique<MetaspaceDecoder>(metaspace);
}
std::unique_ptr<DecoderStage> FuseStage() { return std::make_unique<Fuse>(); }
std::unique_ptr<DecoderStage> StripStage(std::string content, size_t start, size_t stop) {
  return std::make_unique<Strip>(std::move(content), start, stop);
}
std::unique_ptr<DecoderStage> ReplaceStage(std::shared_ptr<const Regex> pattern,
                                           std::string literal, std::string content) {
  if (literal.empty()) return std::make_unique<ReplacePattern>(std::move(pattern), content);
  return std::make_unique<ReplaceLiteral>(std::move(literal), std::move(content));
}
std::unique_ptr<DecoderStage> SuffixStage(std::string suffix) {
  return std::make_unique<Suffix>(std::move(suffix));
}
std::unique_ptr<DecoderStage> WordPieceStage(std::string prefix, bool cleanup) {
  return std::make_unique<WordPieces>(std::move(prefix), cleanup);
}
std::unique_ptr<DecoderStage> JoinStage() { return std::make_unique<JoinBySpace>(); }

}  // namespace pinion
