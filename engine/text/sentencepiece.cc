#include "engine/text/sentencepiece.h"

#include <sentencepiece_processor.h>

#include "engine/base/strings.h"
#include "engine/text/added_tokens.h"
#include "engine/text/decoder.h"
#include "engine/text/tokenizer_config.h"
#include "engine/text/utf8.h"

namespace pinion {
namespace {

using sentencepiece::SentencePieceProcessor;

// As tokenizer.json files made from SentencePiece models decode, so that a stream and a list agree.
constexpr std::string_view kDecoder = R"({"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";

class SentencePieceTokenizer : public Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> Load(const std::string& path, const Json& config);

  Result<std::vector<int32_t>> Encode(std::string_view text,
                                      bool add_special_tokens) const override;
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens) const override;
  std::unique_ptr<TokenStream> Stream(bool skip_special_tokens, StreamMode mode) const override;
  std::string TokenText(int32_t id) const override {
    return Has(id) ? processor_.IdToPiece(id) : std::string();
  }
  std::optional<int32_t> TokenId(std::string_view token) const override {
    const int id = processor_.PieceToId(std::string(token));
    if (processor_.IdToPiece(id) != token) return std::nullopt;  // unknown ones give <unk>'s id
    return id;
  }
  bool is_special(int32_t id) const override {
    return Has(id) && (processor_.IsControl(id) || processor_.IsUnknown(id));
  }
  size_t vocabulary_size() const override { return static_cast<size_t>(processor_.GetPieceSize()); }
  bool Has(int32_t id) const { return id >= 0 && id < processor_.GetPieceSize(); }

 private:
  Status ReadConfig(const Json& config);

  SentencePieceProcessor processor_;
  DecoderPlan decoder_;
  AddedTokenMatcher specials_;
  bool add_bos_ = true, add_eos_ = false;
};

class PieceStream : public TokenStream {
 public:
  PieceStream(const SentencePieceTokenizer& tokenizer, TokenDecoder decoder, bool skip_special)
      : tokenizer_(tokenizer), decoder_(std::move(decoder)), skip_special_(skip_special) {}
  std::string Push(int32_t id) override {
    if (!tokenizer_.Has(id) || (skip_special_ && tokenizer_.is_special(id))) return {};
    return decoder_.Push(tokenizer_.TokenText(id));
  }
  std::string Finish() override { return decoder_.Finish(); }
  std::unique_ptr<TokenStream> Clone() const override {
    return std::make_unique<PieceStream>(*this);
  }

 private:
  const SentencePieceTokenizer& tokenizer_;
  TokenDecoder decoder_;
  bool skip_special_;
};

Result<std::unique_ptr<Tokenizer>> SentencePieceTokenizer::Load(const std::string& path,
                                                                const Json& config) {
  auto tokenizer = std::make_unique<SentencePieceTokenizer>();
  const auto status = tokenizer->processor_.Load(path);
  if (!status.ok())
    return Fail(ErrorCode::kCorrupt,
                StrCat("'", path, "' is not a SentencePiece model: ", status.ToString()));
  PINION_ASSIGN(const Json decoder, Json::Parse(kDecoder));
  PINION_ASSIGN(tokenizer->decoder_, DecoderPlan::Make(decoder));
  PINION_TRY(tokenizer->ReadConfig(config));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

Status SentencePieceTokenizer::ReadConfig(const Json& config) {
  PINION_ASSIGN(add_bos_, Optional<bool>(config, "add_bos_token", true));
  PINION_ASSIGN(add_eos_, Optional<bool>(config, "add_eos_token", false));
  PINION_TRY(ReadSpecialTokens(config, special_tokens_));
  PINION_TRY(ReadChatTemplates(config, chat_template_, tool_template_));
  for (int32_t id = 0; id < processor_.GetPieceSize(); ++id) {
    if (!is_special(id)) continue;
    const AddedToken token{.id = id, .content = processor_.IdToPiece(id), .special = true};
    specials_.Add(token, token.content);
  }
  const auto name = [&](const char* role, int id) {
    if (Has(id)) special_tokens_.emplace(role, processor_.IdToPiece(id));
  };
  name("bos_token", processor_.bos_id());
  name("eos_token", processor_.eos_id());
  name("unk_token", processor_.unk_id());
  name("pad_token", processor_.pad_id());
  return {};
}

Result<std::vector<int32_t>> SentencePieceTokenizer::Encode(std::string_view text,
                                                            bool add_special_tokens) const {
  std::vector<int32_t> ids;
  if (add_special_tokens && add_bos_ && processor_.bos_id() >= 0)
    ids.push_back(processor_.bos_id());
  const std::string clean = SanitizeUtf8(text);
  for (const auto& section : specials_.Split(clean)) {
    if (section.id) {
      ids.push_back(*section.id);
      continue;
    }
    std::vector<int> pieces;
    const auto status =
        processor_.Encode(clean.substr(section.begin, section.end - section.begin), &pieces);
    if (!status.ok()) return Fail(ErrorCode::kFailed, StrCat("SentencePiece: ", status.ToString()));
    ids.insert(ids.end(), pieces.begin(), pieces.end());
  }
  if (add_special_tokens && add_eos_ && processor_.eos_id() >= 0)
    ids.push_back(processor_.eos_id());
  return ids;
}

std::string SentencePieceTokenizer::Decode(std::span<const int32_t> ids,
                                           bool skip_special_tokens) const {
  PieceStream stream(*this, decoder_.Start(StreamMode::kExact), skip_special_tokens);
  std::string text;
  for (int32_t id : ids) text += stream.Push(id);
  return text + stream.Finish();
}

std::unique_ptr<TokenStream> SentencePieceTokenizer::Stream(bool skip_special_tokens,
                                                            StreamMode mode) const {
  return std::make_unique<PieceStream>(*this, decoder_.Start(mode), skip_special_tokens);
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> LoadSentencePiece(const std::string& path, const Json& config) {
  return SentencePieceTokenizer::Load(path, config);
}

}  // namespace pinion
