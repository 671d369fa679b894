#include "engine/text/decoder.h"

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"
#include "engine/text/component.h"
#include "engine/text/decoder_stages.h"
#include "engine/text/steps.h"
#include "engine/text/vocabulary.h"

namespace pinion {
namespace {

using Step = DecoderPlan::Step;

constexpr std::string_view kRole = "decoder";
constexpr int kMaxStrip = 1 << 20;

Result<Step> MakeStrip(const Json& component) {
  PINION_ASSIGN(const std::string content, ReadCharacter(component, "content", " "));
  PINION_ASSIGN(const int start, Optional<int>(component, "start", 0));
  PINION_ASSIGN(const int stop, Optional<int>(component, "stop", 0));
  if (start < 0 || start > kMaxStrip || stop < 0 || stop > kMaxStrip)
    return Fail(ErrorCode::kCorrupt,
                StrCat("Strip of ", start, " and ", stop, " characters, want 0 to ", kMaxStrip));
  return Step{[=](StreamMode) {
    return StripStage(content, static_cast<size_t>(start), static_cast<size_t>(stop));
  }};
}

Result<Step> MakeReplace(const Json& component) {
  PINION_ASSIGN(std::shared_ptr<const Regex> pattern, ReadPattern(component));
  PINION_ASSIGN(const std::string content, Require<std::string>(component, "content"));
  std::string literal;
  if (component.Find("pattern")->Find("String")) {
    PINION_ASSIGN(literal, Require<std::string>(*component.Find("pattern"), "String"));
  }
  const size_t matched = pattern->least_bytes();  // 0: it matches between all bytes
  return Step{[=](StreamMode) { return ReplaceStage(pattern, literal, content); },
              1 + content.size() / std::max<size_t>(1, matched)};
}

Result<Step> MakeMetaspace(const Json& component) {
  PINION_ASSIGN(const Metaspace metaspace, Metaspace::Read(component));
  return Step{[=](StreamMode) { return MetaspaceStage(metaspace); }};
}

Result<Step> MakeSuffix(const Json& component) {
  PINION_ASSIGN(const std::string suffix, Optional<std::string>(component, "suffix", "</w>"));
  if (suffix.empty()) return Fail(ErrorCode::kCorrupt, "the BPEDecoder's 'suffix' is empty");
  return Step{[=](StreamMode) { return SuffixStage(suffix); }};
}

Result<Step> MakeWordPiece(const Json& component) {
  PINION_ASSIGN(const std::string prefix, Optional<std::string>(component, "prefix", "##"));
  PINION_ASSIGN(const bool cleanup, Optional<bool>(component, "cleanup", true));
  // A space goes before a token, which may be a single byte.
  return Step{[=](StreamMode) { return WordPieceStage(prefix, cleanup); }, 2};
}

Step Fusing() {
  return {[](StreamMode) { return FuseStage(); }};
}

Result<Step> MakeStep(const Json& component, std::string_view type) {
  if (type == "ByteLevel") return Step{[](StreamMode) { return ByteLevelStage(); }};
  if (type == "ByteFallback") return Step{ByteFallbackStage};
  if (type == "Fuse") return Fusing();
  if (type == "Metaspace") return MakeMetaspace(component);
  if (type == "Strip") return MakeStrip(component);
  if (type == "Replace") return MakeReplace(component);
  if (type == "BPEDecoder") return MakeSuffix(component);
  if (type == "WordPiece") return MakeWordPiece(component);
  return UnknownComponent(kRole, type,
                          "ByteLevel, ByteFallback, Fuse, Metaspace, Strip, Replace, BPEDecoder, "
                          "WordPiece, Sequence");
}

// Checks the growth of the longest possible token.
Status CheckGrowth(const std::vector<Step>& steps) {
  const Growth growth(kRole, "bytes", Vocabulary::kMaxTokenBytes);
  size_t most = Vocabulary::kMaxTokenBytes;
  for (const Step& step : steps) PINION_TRY(growth.Allow(most *= step.most_times));
  return {};
}

}  // namespace

// The end of the chain.
class TokenDecoder::Collector : public DecoderStage {
 public:
  void Text(std::string_view text) override { text_ += text; }
  void EndToken() override {}
  void Finish() override {}
  std::unique_ptr<DecoderStage> Clone() const override {
    return std::make_unique<Collector>(*this);
  }
  std::string Take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
};

TokenDecoder::TokenDecoder(std::vector<std::unique_ptr<DecoderStage>> stages)
    : stages_(std::move(stages)), collector_(std::make_unique<Collector>()) {
  LinkStages();
}

TokenDecoder::TokenDecoder(const TokenDecoder& other)
    : collector_(std::make_unique<Collector>(*other.collector_)) {
  for (const auto& stage : other.stages_) stages_.push_back(stage->Clone());
  LinkStages();
}

void TokenDecoder::LinkStages() {
  for (size_t i = 0; i < stages_.size(); ++i)
    stages_[i]->set_next(i + 1 < stages_.size() ? stages_[i + 1].get() : collector_.get());
}

TokenDecoder::TokenDecoder(TokenDecoder&&) noexcept = default;
TokenDecoder::~TokenDecoder() = default;

std::string TokenDecoder::Push(std::string_view token) {
  stages_[0]->Text(token);
  stages_[0]->EndToken();
  return collector_->Take();
}

std::string TokenDecoder::Finish() {
  stages_[0]->Finish();
  return collector_->Take();
}

Result<DecoderPlan> DecoderPlan::Make(const Json& component) {
  DecoderPlan plan;
  if (component.is_null()) {
    plan.steps_.push_back({[](StreamMode) { return JoinStage(); }});
    return plan;
  }
  PINION_ASSIGN(plan.steps_, ReadTree(component, kRole, "decoders", MakeStep));
  PINION_TRY(CheckGrowth(plan.steps_));
  // An empty Sequence joins without spaces.
  if (plan.steps_.empty()) plan.steps_.push_back(Fusing());
  return plan;
}

TokenDecoder DecoderPlan::Start(StreamMode mode) const {
  std::vector<std::unique_ptr<DecoderStage>> stages;
  for (const Step& step : steps_) stages.push_back(step.make(mode));
  return TokenDecoder(std::move(stages));
}

}  // namespace pinion
