// Gemma's calls, "call:NAME{key:value,...}": keys without quotes, strings between marks.

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"
#include "engine/serve/call_body.h"

namespace pinion {
namespace {

constexpr size_t kMaxGemmaDepth = 100;  // of lists and objects within the arguments
constexpr std::string_view kGemmaCall = "call:";
constexpr std::string_view kQuotes[] = {"<escape>", "<|\"|>"};

class GemmaBody final : public CallBody {
 public:
  explicit GemmaBody(const KnownTools& tools) : tools_(tools) {}

 private:
  // kKey: before one; kQuotedKey: in one; kColon: behind it; kValue: before one; kText, kWord: in
  // one with quotes and one without; kBehind: before the comma, or what closes the list or object.
  enum class Part { kCall, kName, kKey, kQuotedKey, kColon, kValue, kText, kWord, kBehind, kEnd };

  bool Step() override {
    if (part_ != Part::kQuotedKey && part_ != Part::kText) SkipSpace();
    if (empty()) return false;
    switch (part_) {
      case Part::kCall:
        if (!Take(kGemmaCall)) return !MayBecome(kGemmaCall) && Break();
        return Enter(Part::kName);
      case Part::kName:
        return StepName();
      case Part::kKey:
        return StepKey();
      case Part::kQuotedKey:
        return StepQuotedKey();
      case Part::kColon:
        return Take(":") ? BeginValue() : Break();
      case Part::kValue:
        return StepValue();
      case Part::kText:
        return StepText();
      case Part::kWord:
        return StepWord();
      case Part::kBehind:
        return StepBehind();
      case Part::kEnd:
        break;
    }
    return Break();
  }

  bool Enter(Part part) {
    part_ = part;
    return true;
  }

  bool StepName() {
    const auto name = TakeUntil("{");
    if (!name) return false;
    tool_ = Trim(*name);
    if (tool_.empty()) return Break();
    BeginCall(tool_);
    is_first_ = true;
    return Enter(Part::kKey);
  }

  // Takes the mark that begins a text, if it is there; text that may become one is waited for.
  enum class Quote { kNone, kMore, kTaken };
  Quote TakeQuote() {
    for (const std::string_view quote : kQuotes) {
      if (MayBecome(quote)) return Quote::kMore;
      if (!Take(quote)) continue;
      quote_ = quote;
      return Quote::kTaken;
    }
    return Quote::kNone;
  }

  bool StepKey() {
    if (is_first_ && front() == '}') return Close();
    const Quote quote = TakeQuote();
    if (quote == Quote::kTaken) return Enter(Part::kQuotedKey);
    const auto key = quote == Quote::kNone ? TakeUntilAnyOf(":{}[],") : std::nullopt;
    return key && SetKey(Trim(*key));
  }

  bool StepQuotedKey() {
    const auto key = TakeUntil(quote_);
    return key && SetKey(*key);
  }

  bool SetKey(std::string_view key) {
    if (key.empty()) return Break();
    key_ = key;
    return Enter(Part::kColon);
  }

  bool BeginValue() {
    if (open_.empty())
      BeginArgument(key_);
    else
      AddJson(StrCat(Json(key_).Dump(), ":"));
    return Enter(Part::kValue);
  }

  bool StepValue() {
    if (in_list() && is_first_ && front() == ']') return Close();
    if (open_.size() == kMaxGemmaDepth) return Break();
    const Quote quote = TakeQuote();
    if (quote == Quote::kMore) return false;
    if (quote == Quote::kNone && (front() == '{' || front() == '[')) return Open();
    if (quote == Quote::kNone) return Enter(Part::kWord);
    AddJson("\"");
    BecomeCertain();
    return Enter(Part::kText);
  }

  bool Open() {
    open_ += front();
    AddJson(open_.substr(open_.size() - 1));
    Skip(1);
    BecomeCertain();
    is_first_ = true;
    return Enter(in_list() ? Part::kValue : Part::kKey);
  }

  // The call's arguments, or the innermost list or object in them.
  bool Close() {
    const std::string closes(1, front());
    Skip(1);
    if (open_.empty()) {
      EndCall();
      return Enter(Part::kEnd);
    }
    AddJson(closes);
    open_.pop_back();
    return Enter(Part::kBehind);
  }

  bool StepText() {
    if (const auto value = TakeUntil(quote_)) {
      AddText(*value);
      AddJson("\"");
      return Enter(Part::kBehind);
    }
    const size_t certain = rest().size() - HeldFor(rest(), quote_);
    AddText(rest().substr(0, certain));
    Skip(certain);
    return false;
  }

  // JSON, or a text without quotes.
  bool StepWord() {
    const auto taken = TakeUntilAnyOf(",{}[]");
    if (!taken) return false;
    const std::string_view word = Trim(*taken);
    if (word.empty()) return Break();
    const auto json = Json::Parse(word);
    AddJson((json ? *json : Json(word)).Dump());
    BecomeCertain();
    return Enter(Part::kBehind);
  }

  bool StepBehind() {
    if (front() == (in_list() ? ']' : '}')) return Close();
    if (!Take(",")) return Break();
    is_first_ = false;
    if (!open_.empty()) AddJson(",");
    return Enter(in_list() ? Part::kValue : Part::kKey);
  }

  void BecomeCertain() {
    if (tools_.Has(tool_)) SetCertain();
  }

  bool in_list() const { return open_.ends_with('['); }

  bool Complete() override { return part_ == Part::kEnd && empty(); }

  bool is_between_arguments() const override {
    return open_.empty() && (part_ == Part::kKey || part_ == Part::kQuotedKey ||
                             part_ == Part::kColon || part_ == Part::kBehind);
  }

  const KnownTools& tools_;
  Part part_ = Part::kCall;
  std::string tool_, key_;  // of the argument or member in progress
  std::string_view quote_;  // of the text in progress
  std::string open_;        // brackets within the arguments
  bool is_first_ = false;   // in its list or object
};

}  // namespace

std::unique_ptr<CallBody> MakeGemmaBody(const KnownTools& tools) {
  return std::make_unique<GemmaBody>(tools);
}

}  // namespace pinion
