// Calls whose arguments are marked one by one and have no quotes: Qwen3-Coder, GLM, DeepSeek-V3.2.

#include <utility>

#include "engine/base/strings.h"
#include "engine/serve/call_body.h"

namespace pinion {
namespace {

// The marks of a format, in the order in which a call has them; white space may come before each.
struct TagMarks {
  std::string_view call, name_end;  // both empty: the body begins with the name of its only call
  std::string_view key, key_end;
  std::string_view text, json;  // before a value; equal: its parameter's schema decides
  std::string_view value_end, call_end;
  std::string_view not_in_name;    // characters
  bool values_have_lines = false;  // of their own, so that a line end on either side is not theirs
};

constexpr TagMarks kCoder = {"<function=",  ">", "<parameter=", ">", "", "", "</parameter>",
                             "</function>", "",  true};
constexpr TagMarks kGlm = {
    "", "", "<arg_key>", "</arg_key>", "<arg_value>", "<arg_value>", "</arg_value>", "", "<>\n{"};
constexpr TagMarks kDsml = {"<｜DSML｜invoke name=\"",
                            "\">",
                            "<｜DSML｜parameter name=\"",
                            "\" string=\"",
                            "true\">",
                            "false\">",
                            "</｜DSML｜parameter>",
                            "</｜DSML｜invoke>",
                            ""};

// A value that is not JSON is a string.
Json JsonOrText(std::string_view text) {
  // In a list, as it will be in an object: it must not be nested too deeply to be read there.
  auto list = Json::Parse(StrCat('[', Trim(text), ']'));
  if (list && list->array().size() == 1) return std::move(list->array().front());
  // As Python writes them.
  if (Trim(text) == "True") return true;
  if (Trim(text) == "False") return false;
  if (Trim(text) == "None") return nullptr;
  return Json(text);
}

class TagBody final : public CallBody {
 public:
  TagBody(const TagMarks& marks, const KnownTools& tools)
      : marks_(marks), tools_(tools), part_(marks.call.empty() ? Part::kName : Part::kCall) {}

 private:
  // kNext: before an argument or the call's end; kValue: before one; kText: in a string.
  enum class Part { kCall, kName, kNext, kKey, kValue, kText, kJson };

  bool Step() override {
    switch (part_) {
      case Part::kCall:
        return StepCall();
      case Part::kName:
        return StepName();
      case Part::kNext:
        return StepNext();
      case Part::kKey:
        return StepKey();
      case Part::kValue:
        return StepValue();
      case Part::kText:
        return StepText();
      case Part::kJson:
        return StepJson();
    }
    return false;
  }

  bool StepCall() {
    SkipSpace();
    if (!Take(marks_.call)) return !MayBecome(marks_.call) && Break();
    part_ = Part::kName;
    return true;
  }

  bool StepName() {
    const bool ends_with_key = marks_.name_end.empty();
    const auto name = TakeUntil(ends_with_key ? marks_.key : marks_.name_end);
    if (!name) return false;
    part_ = ends_with_key ? Part::kKey : Part::kNext;
    return Begin(*name);
  }

  bool Begin(std::string_view name) {
    name = Trim(name);
    if (name.empty() || name.find_first_of(marks_.not_in_name) != name.npos) return Break();
    tool_ = name;
    BeginCall(name);
    return true;
  }

  bool StepNext() {
    SkipSpace();
    if (Take(marks_.key)) {
      part_ = Part::kKey;
      return true;
    }
    if (!marks_.call_end.empty() && Take(marks_.call_end)) {
      FinishCall();
      return true;
    }
    return !MayBecome(marks_.key) && !MayBecome(marks_.call_end) && Break();
  }

  void FinishCall() {
    EndCall();
    if (tools_.Has(tool_)) SetCertain();
    ++calls_;
    part_ = Part::kCall;
  }

  bool StepKey() {
    const auto key = TakeUntil(marks_.key_end);
    if (!key) return false;
    key_ = Trim(*key);
    part_ = Part::kValue;
    return true;
  }

  bool StepValue() {
    if (!marks_.text.empty()) SkipSpace();
    const bool is_marked = marks_.text != marks_.json;
    bool is_text = Take(marks_.text);
    if (!is_text && !Take(marks_.json))
      return !MayBecome(marks_.text) && !MayBecome(marks_.json) && Break();
    if (!is_marked) is_text = tools_.IsText(tool_, key_);
    if (marks_.values_have_lines && empty()) return false;
    if (marks_.values_have_lines && front() == '\n') Skip(1);
    BeginArgument(key_);
    if (is_text) AddJson("\"");
    if (tools_.Has(tool_)) SetCertain();
    part_ = is_text ? Part::kText : Part::kJson;
    return true;
  }

  bool StepText() {
    if (const auto value = TakeUntil(marks_.value_end)) {
      AddText(WithoutLineEnd(*value));
      AddJson("\"");
      part_ = Part::kNext;
      return true;
    }
    const std::string_view text =
        rest().substr(0, rest().size() - HeldFor(rest(), marks_.value_end));
    const std::string_view certain = WithoutLineEnd(text);
    AddText(certain);
    Skip(certain.size());
    return false;
  }

  bool StepJson() {
    const auto value = TakeUntil(marks_.value_end);
    if (!value) return false;
    AddJson(JsonOrText(WithoutLineEnd(*value)).Dump());
    part_ = Part::kNext;
    return true;
  }

  // The one that belongs to the end mark, which may be yet to come.
  std::string_view WithoutLineEnd(std::string_view value) const {
    if (marks_.values_have_lines && value.ends_with('\n')) value.remove_suffix(1);
    return value;
  }

  bool Complete() override {
    SkipSpace();
    if (!marks_.call.empty()) return part_ == Part::kCall && calls_ > 0 && empty();
    // The body's end is that of its only call.
    if (part_ == Part::kName && !Begin(rest())) return false;
    if (part_ != Part::kName && (part_ != Part::kNext || !empty())) return false;
    EndCall();
    return true;
  }

  bool is_between_arguments() const override {
    return part_ == Part::kNext || part_ == Part::kKey || part_ == Part::kValue;
  }

  const TagMarks& marks_;
  const KnownTools& tools_;
  Part part_;
  std::string tool_, key_;  // of the argument in progress
  size_t calls_ = 0;        // that have ended
};

}  // namespace

std::unique_ptr<CallBody> MakeCoderBody(const KnownTools& tools) {
  return std::make_unique<TagBody>(kCoder, tools);
}

std::unique_ptr<CallBody> MakeGlmBody(const KnownTools& tools) {
  return std::make_unique<TagBody>(kGlm, tools);
}

std::unique_ptr<CallBody> MakeDsmlBody(const KnownTools& tools) {
  return std::make_unique<TagBody>(kDsml, tools);
}

}  // namespace pinion
