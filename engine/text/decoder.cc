#include "engine/text/decoder.h"

#include "engine/base/strings.h"
#include "engine/text/component.h"
#include "engine/text/decoder_stages.h"

namespace pinion {
namespace {

using StageMaker = DecoderPlan::StageMaker;
using StageMakers = std::vector<StageMaker>;

constexpr int kMaxStrip = 1 << 20;

Result<StageMaker> MakeStrip(const Json& component) {
  PINION_ASSIGN(const std::string content, ReadCharacter(component, "content", " "));
  PINION_ASSIGN(const int start, Optional<int>(component, "start", 0));
  PINION_ASSIGN(const int stop, Optional<int>(component, "stop", 0));
  if (start < 0 || start > kMaxStrip || stop < 0 || stop > kMaxStrip)
    return Fail(ErrorCode::kCorrupt,
                StrCat("Strip of ", start, " and ", stop, " characters, want 0 to ", kMaxStrip));
  return StageMaker([=](StreamMode) {
    return StripStage(content, static_cast<size_t>(start), static_cast<size_t>(stop));
  });
}

Result<StageMaker> MakeReplace(const Json& component) {
  PINION_ASSIGN(std::shared_ptr<const Regex> pattern, ReadPattern(component));
  PINION_ASSIGN(const std::string content, Require<std::string>(component, "content"));
  std::string literal;
  if (component.Find("pattern")->Find("String")) {
    PINION_ASSIGN(literal, Require<std::string>(*component.Find("pattern"), "String"));
  }
  return StageMaker([=](StreamMode) { return ReplaceStage(pattern, literal, content); });
}

Result<StageMaker> MakeMetaspace(const Json& component) {
  PINION_ASSIGN(const Metaspace metaspace, Metaspace::Read(component));
  return StageMaker([=](StreamMode) { return MetaspaceStage(metaspace); });
}

Result<StageMaker> MakeSuffix(const Json& component) {
  PINION_ASSIGN(const std::string suffix, Optional<std::string>(component, "suffix", "</w>"));
  if (suffix.empty()) return Fail(ErrorCode::kCorrupt, "the BPEDecoder's 'suffix' is empty");
  return StageMaker([=](StreamMode) { return SuffixStage(suffix); });
}

Result<StageMakers> MakeStages(const Json& component);

Result<StageMakers> MakeSequence(const Json& component) {
  PINION_ASSIGN(const std::vector<StageMakers> children,
                ReadChildren<StageMakers>(component, "decoders", MakeStages));
  StageMakers flat;
  for (const StageMakers& child : children) flat.insert(flat.end(), child.begin(), child.end());
  return flat;
}

Result<StageMakers> One(Result<StageMaker> maker) {
  if (!maker) return Unexpected(std::move(maker).error());
  return StageMakers{std::move(*maker)};
}

Result<StageMakers> MakeStages(const Json& component) {
  PINION_ASSIGN(const std::string type, ComponentType(component, "decoder"));
  if (type == "ByteLevel") return StageMakers{[](StreamMode) { return ByteLevelStage(); }};
  if (type == "ByteFallback") return StageMakers{ByteFallbackStage};
  if (type == "Fuse") return StageMakers{[](StreamMode) { return FuseStage(); }};
  if (type == "Metaspace") return One(MakeMetaspace(component));
  if (type == "Strip") return One(MakeStrip(component));
  if (type == "Replace") return One(MakeReplace(component));
  if (type == "BPEDecoder") return One(MakeSuffix(component));
  if (type == "Sequence") return MakeSequence(component);
  return UnknownComponent("decoder", type,
                          "ByteLevel, ByteFallback, Fuse, Metaspace, Strip, Replace, BPEDecoder, "
                          "Sequence");
}

}  // namespace

// The end of the chain.
class TokenDecoder::Collector : public DecoderStage {
 public:
  void Text(std::string_view text) override { text_ += text; }
  void EndToken() override {}
  void Finish() override {}
  std::string Take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
};

TokenDecoder::TokenDecoder(std::vector<std::unique_ptr<DecoderStage>> stages)
    : stages_(std::move(stages)), collector_(std::make_unique<Collector>()) {
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
    plan.makers_.push_back([](StreamMode) { return JoinStage(); });
    return plan;
  }
  PINION_ASSIGN(plan.makers_, MakeStages(component));
  // An empty Sequence joins without spaces.
  if (plan.makers_.empty()) plan.makers_.push_back([](StreamMode) { return FuseStage(); });
  return plan;
}

TokenDecoder DecoderPlan::Start(StreamMode mode) const {
  std::vector<std::unique_ptr<DecoderStage>> stages;
  for (const StageMaker& maker : makers_) stages.push_back(maker(mode));
  return TokenDecoder(std::move(stages));
}

}  // namespace pinion
