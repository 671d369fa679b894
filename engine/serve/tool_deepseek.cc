// Calls of DeepSeek-V3 and V3.1: a name and JSON between marks, several in a body.

#include <utility>

#include "engine/base/strings.h"
#include "engine/serve/call_body.h"
#include "engine/serve/json_call.h"

namespace pinion {
namespace {

constexpr std::string_view kCallBegin = "<｜tool▁call▁begin｜>";
constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
constexpr std::string_view kCallEnd = "<｜tool▁call▁end｜>";
constexpr std::string_view kCallsEnd = "<｜tool▁calls▁end｜>";
// The beginning of both end marks, which no JSON has but in a string.
constexpr std::string_view kAnyEnd = "<｜tool▁call";
constexpr std::string_view kFence = "```";

class DeepSeekBody final : public CallBody {
 private:
  // kHead: between the separator and the arguments; kBehind: between those and the call's end.
  enum class Part { kCall, kName, kSeparator, kHead, kArguments, kBehind };

  bool Step() override {
    if (part_ != Part::kArguments) SkipSpace();
    if (empty()) return false;
    switch (part_) {
      case Part::kCall:
        if (Take(kCallBegin)) return Enter(Part::kName);
        return !MayBecome(kCallBegin) && StepEnd();
      case Part::kName:
        return StepName();
      case Part::kSeparator:
        if (!Take(kSeparator)) return !MayBecome(kSeparator) && Break();
        return Enter(Part::kHead);
      case Part::kHead:
        return StepHead();
      case Part::kArguments:
        return StepArguments();
      case Part::kBehind:
        break;
    }
    return StepBehind();
  }

  bool Enter(Part part) {
    part_ = part;
    return true;
  }

  // The mark is left to the reader of the text behind it.
  bool StepEnd() {
    if (MayBecome(kCallsEnd)) return false;
    if (!certain() || !rest().starts_with(kCallsEnd)) return Break();
    SetDone();
    return false;
  }

  bool StepName() {
    const auto name = TakeUntilAnyOf("<");
    if (!name) return false;
    name_ = Trim(*name);
    return Enter(Part::kSeparator);
  }

  // V3.1 has the arguments here. V3, whose name was "function", has the name and a fence first.
  bool StepHead() {
    const auto head = TakeUntilAnyOf("{<");
    if (!head) return false;
    if (const std::string_view text = Trim(*head); !text.empty())
      name_ = Trim(text.substr(0, text.find(kFence)));
    if (front() == '<' || name_.empty()) return Break();
    BeginCall(name_);
    Skip(1);
    json_ = JsonEnd(1);
    SetCertain();
    return Enter(Part::kArguments);
  }

  // They are passed on as they are, up to their bracket or a mark that comes too early.
  bool StepArguments() {
    const size_t bytes = json_.Take(rest(), kAnyEnd);
    AddJson(rest().substr(0, bytes));
    Skip(bytes);
    return (json_.done() || rest().starts_with(kAnyEnd)) && Enter(Part::kBehind);
  }

  bool StepBehind() {
    if (Take(kFence)) return true;
    if (Take(kCallEnd)) return Enter(Part::kCall);
    return !MayBecome(kFence) && !MayBecome(kCallEnd) && StepEnd();
  }

  bool Complete() override { return part_ == Part::kCall && certain() && empty(); }

  bool is_between_arguments() const override { return false; }

  Part part_ = Part::kCall;
  std::string name_;
  JsonEnd json_;  // of the arguments
};

}  // namespace

std::unique_ptr<CallBody> MakeDeepSeekBody(const KnownTools&) {
  return std::make_unique<DeepSeekBody>();
}

}  // namespace pinion
