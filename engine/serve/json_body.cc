// Calls that are JSON objects, or a name and such an object: Hermes and Qwen, Llama 3 and 4,
// Mistral, Granite. Their arguments are passed on as they come.

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"
#include "engine/serve/call_body.h"
#include "engine/serve/json_call.h"
#include "engine/serve/output_format.h"

namespace pinion {
namespace {

// How the calls of a body are laid out.
enum class JsonLayout {
  kOne,    // {"name": ..., "arguments": {...}}: a body is one call
  kChain,  // several of them with ';' between; only tools of the request
  kList,   // a list of them
  kNamed   // the same, or NAME{...}, of which a body has one
};

struct JsonCalls {
  JsonLayout layout;
  std::string_view end;  // the mark behind a body; empty: there is none
  ReadCalls* read_whole;
};

constexpr JsonCalls kHermes = {JsonLayout::kOne, "</tool_call>", ReadHermesCalls};
constexpr JsonCalls kLlama = {JsonLayout::kChain, "", ReadLlamaCalls};
constexpr JsonCalls kGranite = {JsonLayout::kList, "", ReadCallList};
constexpr JsonCalls kMistral = {JsonLayout::kNamed, "", ReadMistralCalls};

class JsonBody final : public CallBody {
 public:
  JsonBody(const JsonCalls& calls, const KnownTools& tools) : calls_(calls), tools_(tools) {}

 private:
  // kHead: of the first call; kWhole: of a body that can only be read as a whole; kArguments: of a
  // call; kRest: of its object; kBetween: behind one of several; kNext: the head of another; kItem:
  // a call that is an object but does not begin with its name; kNamed: behind a call whose name is
  // not in an object.
  enum class Part { kHead, kWhole, kArguments, kRest, kBetween, kNext, kItem, kNamed };

  bool Step() override {
    switch (part_) {
      case Part::kHead:
        return StepHead();
      case Part::kWhole:
        return StepWhole();
      case Part::kArguments:
      case Part::kRest:
        return StepArguments();
      case Part::kBetween:
        return StepBetween();
      case Part::kNext:
        return StepNext();
      case Part::kItem:
        return StepItem();
      case Part::kNamed:
        break;
    }
    return StepNamed();
  }

  bool Enter(Part part) {
    part_ = part;
    return true;
  }

  // The text after this does not belong to the body.
  bool Finish() {
    SetDone();
    return false;
  }

  bool StepHead() {
    const CallHead head = ReadFirstHead();
    if (head.state == CallHead::State::kMore) return false;
    if (head.state == CallHead::State::kFound) return BeginArguments(head);
    if (!in_object_ || calls_.layout == JsonLayout::kOne) return BeginWhole();
    return BeginItem(in_list_ ? rest().find('[') + 1 : 0, /*is_first=*/true);
  }

  // With the bracket of the list that the call may be in.
  CallHead ReadFirstHead() {
    const JsonLayout layout = calls_.layout;
    in_object_ = true;
    if (layout == JsonLayout::kOne || layout == JsonLayout::kChain) return ReadHead(rest());
    const std::string_view text = Trim(rest());
    if (text.empty()) return {CallHead::State::kMore, "", 0};
    in_list_ = text[0] == '[';
    in_object_ = in_list_;
    if (!in_list_) return layout == JsonLayout::kNamed ? ReadNamedHead(rest()) : CallHead{};
    const size_t open = rest().find('[') + 1;
    CallHead head = ReadHead(rest().substr(open));
    head.bytes += open;
    return head;
  }

  CallHead ReadHead(std::string_view text) const {
    CallHead head = ReadCallHead(text);
    const bool is_any = calls_.layout != JsonLayout::kChain || tools_.Has(head.name);
    if (head.state == CallHead::State::kFound && !is_any) head.state = CallHead::State::kNone;
    return head;
  }

  bool BeginArguments(const CallHead& head) {
    BeginCall(head.name);
    Skip(head.bytes + 1);  // with their brace, which the call has already
    json_ = JsonEnd(1);
    SetCertain();
    return Enter(Part::kArguments);
  }

  // A mark that comes too early ends the call, too.
  bool StepArguments() {
    const size_t bytes = json_.Take(rest(), calls_.end);
    if (part_ == Part::kArguments) AddJson(rest().substr(0, bytes));
    Skip(bytes);
    const bool is_cut = !calls_.end.empty() && rest().starts_with(calls_.end);
    if (!json_.done() && !is_cut) return false;
    const bool has_rest = json_.done() && part_ == Part::kArguments && in_object_;
    json_ = JsonEnd(1);
    if (has_rest) return Enter(Part::kRest);
    if (calls_.layout == JsonLayout::kOne) return Finish();
    return Enter(in_object_ ? Part::kBetween : Part::kNamed);
  }

  // Only another call or the end of the list is expected here.
  bool StepBetween() {
    SkipSpace();
    if (empty()) return false;
    const char c = front();
    const bool is_separator = c == (in_list_ ? ',' : ';');
    if (is_separator || (in_list_ && c == ']')) Skip(1);
    const bool goes_on = is_separator || (!in_list_ && c == '{');
    return goes_on ? Enter(Part::kNext) : Finish();
  }

  bool StepNext() {
    SkipSpace();
    if (empty()) return false;
    const CallHead head = ReadHead(rest());
    if (head.state == CallHead::State::kMore) return false;
    if (head.state == CallHead::State::kFound) return BeginArguments(head);
    return front() == '{' ? BeginItem(0, /*is_first=*/false) : Finish();
  }

  bool BeginItem(size_t at, bool is_first) {
    json_ = JsonEnd();
    scanned_ = item_at_ = at;
    is_first_ = is_first;
    return Enter(Part::kItem);
  }

  bool StepItem() {
    scanned_ += json_.Take(rest().substr(scanned_));
    if (!json_.done()) return false;
    const std::string_view item = rest().substr(item_at_, scanned_ - item_at_);
    auto calls =
        (calls_.layout == JsonLayout::kChain ? ReadLlamaCalls : ReadHermesCalls)(item, tools_);
    if (!calls) return is_first_ ? BeginWhole() : Finish();
    AddCalls(std::move(*calls));
    Skip(scanned_);
    return Enter(Part::kBetween);
  }

  // Another call may follow without a mark of its own, if it is of a tool of the request.
  bool StepNamed() {
    SkipSpace();
    if (empty()) return false;
    CallHead head;
    if (tools_.MayBegin(rest())) head = ReadNamedHead(rest());
    if (head.state == CallHead::State::kMore) return false;
    return head.state == CallHead::State::kFound ? BeginArguments(head) : Finish();
  }

  bool BeginWhole() {
    mark_ = JsonMark(calls_.end);
    scanned_ = 0;
    return Enter(Part::kWhole);
  }

  bool StepWhole() {
    scanned_ += mark_.Take(rest().substr(scanned_));
    if (!mark_.found()) return false;
    if (!ReadWhole(rest().substr(0, scanned_))) return Break();
    Skip(scanned_);
    return Finish();
  }

  bool ReadWhole(std::string_view body) {
    auto calls = calls_.read_whole(body, tools_);
    if (calls) AddCalls(std::move(*calls));
    return calls.has_value();
  }

  void AddCalls(std::vector<ToolCall> calls) {
    for (ToolCall& call : calls) AddCall(std::move(call));
    SetCertain();
  }

  // The text ends here: another call that has begun does not count, and text that may have become a
  // mark is dropped.
  bool Complete() override {
    if (!certain()) return ReadWhole(rest());
    if (part_ == Part::kNext || part_ == Part::kItem || part_ == Part::kNamed) SetDone();
    return false;
  }

  bool is_between_arguments() const override { return false; }

  const JsonCalls& calls_;
  const KnownTools& tools_;
  Part part_ = Part::kHead;
  bool in_list_ = false;    // the calls are in one
  bool in_object_ = false;  // a call's arguments are in an object with its name
  bool is_first_ = false;   // the item, so that the body may yet be text
  size_t scanned_ = 0;      // bytes of the item, or of the whole body
  size_t item_at_ = 0;      // where it begins: behind the bracket of its list
  JsonEnd json_;            // of arguments, objects and items
  JsonMark mark_;           // the body's end
};

}  // namespace

std::unique_ptr<CallBody> MakeHermesBody(const KnownTools& tools) {
  return std::make_unique<JsonBody>(kHermes, tools);
}

std::unique_ptr<CallBody> MakeLlamaBody(const KnownTools& tools) {
  return std::make_unique<JsonBody>(kLlama, tools);
}

std::unique_ptr<CallBody> MakeGraniteBody(const KnownTools& tools) {
  return std::make_unique<JsonBody>(kGranite, tools);
}

std::unique_ptr<CallBody> MakeMistralBody(const KnownTools& tools) {
  return std::make_unique<JsonBody>(kMistral, tools);
}

}  // namespace pinion
