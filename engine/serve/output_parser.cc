#include "engine/serve/output_parser.h"

#include <algorithm>
#include <utility>

namespace pinion {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

// Bytes of a body that are read at a time: if it breaks, no more is given back, so that a text of
// many broken bodies takes linear time.
constexpr size_t kBodySlice = 1024;

}  // namespace

OutputParser::OutputParser(OutputRules rules) : rules_(std::move(rules)) {
  if (!rules_.thoughts || !rules_.starts_in_thought) return;
  part_ = Part::kThought;
  skips_space_ = true;
  may_think_ = false;
}

ParsedOutput OutputParser::Push(std::string_view text, bool last) {
  text_ += text;
  while (Step()) continue;
  if (last) EndAll();
  text_.erase(0, std::exchange(past_, 0));
  if (!rules_.shows_thoughts) parsed_.reasoning.clear();
  return std::exchange(parsed_, {});
}

bool OutputParser::Step() {
  switch (part_) {
    case Part::kThought:
      return StepThought();
    case Part::kContent:
      return StepContent();
    case Part::kCall:
      return may_stream_ ? StepCallHead() : StepCall();
    case Part::kBody:
      return StepBody();
    case Part::kArguments:
    case Part::kCallRest:
      return StepArguments();
    case Part::kBetween:
      return StepBetween();
    case Part::kNext:
      return StepNext();
    case Part::kItem:
      return StepItem();
    case Part::kNamed:
      return StepNamed();
    case Part::kCallEnd:
      break;
  }
  return StepCallEnd();
}

bool OutputParser::StepThought() {
  const std::string_view end = rules_.thoughts->end;
  const size_t at = held().find(end);
  if (at == std::string_view::npos) {
    WriteAllBut(HeldFor(held(), end), parsed_.reasoning);
    return false;
  }
  WriteAllBut(held().size() - at, parsed_.reasoning);
  past_ += end.size();
  space_.clear();
  skips_space_ = true;
  part_ = Part::kContent;
  return true;
}

bool OutputParser::StepContent() {
  if (at_start_) {
    const size_t first = held().find_first_not_of(kSpace);
    WriteAllBut(first == std::string_view::npos ? 0 : held().size() - first, parsed_.content);
    if (held().empty()) return false;
    if (may_think_ && rules_.thoughts) {
      const std::string_view begin = rules_.thoughts->begin;
      if (held().starts_with(begin)) return BeginThought();
      if (begin.starts_with(held())) return false;
    }
    if (rules_.calls && rules_.calls->bare && held().starts_with(rules_.calls->bare))
      return BeginCall("", 0);
  }
  if (!rules_.calls) {
    WriteAllBut(0, parsed_.content);
    return false;
  }
  const std::string_view begin = rules_.calls->begin;
  const size_t at = held().find(begin);
  if (at != std::string_view::npos) return BeginCall(begin, at);
  WriteAllBut(HeldFor(held(), begin), parsed_.content);
  return false;
}

bool OutputParser::BeginThought() {
  past_ += rules_.thoughts->begin.size();
  part_ = Part::kThought;
  may_think_ = false;
  space_.clear();
  skips_space_ = true;
  return true;
}

bool OutputParser::BeginCall(std::string_view begin, size_t at) {
  WriteAllBut(held().size() - at, parsed_.content);
  past_ += begin.size();
  begin_ = begin;
  scanned_ = 0;
  in_string_ = false;
  may_stream_ = rules_.calls->streams != CallStream::kNone;
  part_ = Part::kCall;
  if (!rules_.calls->make_body) return true;
  body_ = rules_.calls->make_body(*rules_.tools);
  part_ = Part::kBody;
  return true;
}

bool OutputParser::StepCallHead() {
  CallHead head = ReadFirstHead();
  if (head.state == CallHead::State::kMore) return false;
  may_stream_ = false;
  if (head.state == CallHead::State::kFound)
    BeginArguments(std::move(head));
  else if (in_object_ && rules_.calls->streams != CallStream::kOne)
    BeginItem(in_list_ ? held().find('[') + 1 : 0, /*is_first=*/true);
  return true;
}

// Of a body's first call, with the bracket of the list that it may be in.
CallHead OutputParser::ReadFirstHead() {
  const CallStream streams = rules_.calls->streams;
  const size_t open = std::min(held().find_first_not_of(kSpace), held().size());
  in_object_ = true;
  in_list_ = false;
  if (streams == CallStream::kOne || streams == CallStream::kChain) return ReadHead(held());
  if (open == held().size()) return {CallHead::State::kMore, "", 0};
  in_list_ = held()[open] == '[';
  if (in_list_) {
    CallHead head = ReadHead(held().substr(open + 1));
    head.bytes += open + 1;
    return head;
  }
  in_object_ = false;
  return streams == CallStream::kNamed ? ReadNamedHead(held()) : CallHead{};
}

CallHead OutputParser::ReadHead(std::string_view text) const {
  CallHead head = ReadCallHead(text);
  const bool any = rules_.calls->streams != CallStream::kChain || rules_.tools->Has(head.name);
  if (head.state == CallHead::State::kFound && !any) head.state = CallHead::State::kNone;
  return head;
}

void OutputParser::BeginArguments(CallHead head) {
  drops_ = !rules_.parallel && calls_++ > 0;
  if (!drops_) parsed_.calls.push_back({std::move(head.name), ""});
  past_ += head.bytes;
  LeaveCall();
  json_ = JsonEnd();
  part_ = Part::kArguments;
}

// A mark that comes too early ends the call, too.
bool OutputParser::StepArguments() {
  const std::string_view end = rules_.calls->end;
  const size_t bytes = json_.Take(held(), end);
  if (part_ == Part::kArguments && !drops_) parsed_.AddArguments(held().substr(0, bytes));
  past_ += bytes;
  const bool is_cut = !end.empty() && held().starts_with(end);
  if (!json_.done() && !is_cut) return false;
  const bool has_rest = json_.done() && part_ == Part::kArguments && in_object_;
  part_ = has_rest ? Part::kCallRest : PartBehind();
  json_ = JsonEnd(1);
  return true;
}

OutputParser::Part OutputParser::PartBehind() const {
  if (rules_.calls->streams == CallStream::kOne) return Part::kCallEnd;
  return in_object_ ? Part::kBetween : Part::kNamed;
}

// Only another call or the end of the list is expected here; anything else is content.
bool OutputParser::StepBetween() {
  past_ += std::min(held().find_first_not_of(kSpace), held().size());
  if (held().empty()) return false;
  const char c = held()[0];
  part_ = Part::kContent;
  if (c == (in_list_ ? ',' : ';') || (in_list_ && c == ']')) ++past_;
  if (in_list_ ? c == ',' : c == ';' || c == '{') part_ = Part::kNext;
  return true;
}

bool OutputParser::StepNext() {
  past_ += std::min(held().find_first_not_of(kSpace), held().size());
  if (held().empty()) return false;
  CallHead head = ReadHead(held());
  if (head.state == CallHead::State::kMore) return false;
  if (head.state == CallHead::State::kFound) {
    BeginArguments(std::move(head));
    return true;
  }
  part_ = Part::kContent;
  if (held()[0] == '{') BeginItem(0, /*is_first=*/false);
  return true;
}

void OutputParser::BeginItem(size_t at, bool is_first) {
  part_ = Part::kItem;
  json_ = JsonEnd();
  scanned_ = item_at_ = at;
  is_first_ = is_first;
}

bool OutputParser::StepItem() {
  scanned_ += json_.Take(held().substr(scanned_));
  if (!json_.done()) return false;
  const std::string_view item = held().substr(item_at_, scanned_ - item_at_);
  const bool is_chain = rules_.calls->streams == CallStream::kChain;
  auto calls = (is_chain ? ReadLlamaCalls : ReadHermesCalls)(item, *rules_.tools);
  part_ = calls ? Part::kBetween : is_first_ ? Part::kCall : Part::kContent;
  if (!calls) {
    scanned_ = 0;
    return true;
  }
  for (ToolCall& call : *calls) AddCall(std::move(call));
  past_ += scanned_;
  LeaveCall();
  return true;
}

// Another call may follow without a mark of its own, if it is of a tool of the request.
bool OutputParser::StepNamed() {
  past_ += std::min(held().find_first_not_of(kSpace), held().size());
  if (held().empty()) return false;
  CallHead head;
  if (rules_.tools->MayBegin(held())) head = ReadNamedHead(held());
  if (head.state == CallHead::State::kMore) return false;
  part_ = Part::kContent;
  if (head.state == CallHead::State::kFound) BeginArguments(std::move(head));
  return true;
}

void OutputParser::AddCall(ToolCall call) {
  if (rules_.parallel || calls_++ == 0) parsed_.calls.push_back(std::move(call));
}

bool OutputParser::StepCallEnd() {
  const std::string_view end = rules_.calls->end;
  past_ += std::min(held().find_first_not_of(kSpace), held().size());
  const bool ends = held().starts_with(end);
  if (!ends && end.starts_with(held())) return false;
  if (ends) past_ += end.size();
  part_ = Part::kContent;
  return true;
}

bool OutputParser::StepCall() {
  const std::string_view end = rules_.calls->end;
  if (end.empty()) return false;
  if (rules_.calls->json) return ScanJson() && EndCall(end);
  const size_t at = held().find(end, scanned_);
  scanned_ = at != std::string_view::npos ? at : held().size() - HeldFor(held(), end);
  return at != std::string_view::npos && EndCall(end);
}

// Moves scanned_ up to the end mark; false if it is not there yet.
bool OutputParser::ScanJson() {
  const std::string_view end = rules_.calls->end, text = held();
  while (scanned_ < text.size()) {
    const char c = text[scanned_];
    if (in_string_) {
      if (c == '\\' && scanned_ + 1 == text.size()) return false;
      scanned_ += c == '\\' ? 2 : 1;
      in_string_ = c != '"';
      continue;
    }
    const std::string_view rest = text.substr(scanned_);
    if (rest.starts_with(end)) return true;
    if (end.starts_with(rest)) return false;
    in_string_ = c == '"';
    ++scanned_;
  }
  return false;
}

// The body is held() up to scanned_, and then comes `end`.
bool OutputParser::EndCall(std::string_view end) {
  const size_t bytes = scanned_ + end.size();
  const auto read = rules_.calls->read;
  auto calls = read ? read(held().substr(0, scanned_), *rules_.tools) : std::nullopt;
  part_ = Part::kContent;
  if (!calls) {
    Write(begin_, parsed_.content);
    WriteAllBut(held().size() - bytes, parsed_.content);
    return true;
  }
  for (ToolCall& call : *calls) AddCall(std::move(call));
  past_ += bytes;
  LeaveCall();
  return true;
}

bool OutputParser::StepBody() {
  // A body with JSON within finds its end by itself: the mark may be in a string.
  const std::string_view end = rules_.calls->json ? "" : rules_.calls->end;
  const bool is_all = held().size() <= scanned_ + kBodySlice;
  const std::string_view slice = held().substr(0, scanned_ + kBodySlice);
  const size_t at = end.empty() ? std::string_view::npos : slice.find(end, scanned_);
  const bool ends = at != std::string_view::npos;
  const size_t known = ends ? at : slice.size() - HeldFor(slice, end);
  body_->Push(slice.substr(scanned_, known - scanned_));
  scanned_ = known;
  if (body_->certain()) {
    if (body_->broken()) body_->CloseCall();
    GiveBody();
    if (body_->broken() || body_->done()) return LeaveBody();
  } else if (body_->broken()) {
    part_ = Part::kCall;  // which is text, up to its end
    scanned_ = 0;
    return true;
  }
  return ends ? EndBody(end) : !is_all;
}

void OutputParser::GiveBody() {
  for (ToolCall& call : body_->TakeCalls()) {
    if (!call.name.empty()) drops_ = !rules_.parallel && calls_++ > 0;
    if (!drops_) parsed_.Append({"", "", {std::move(call)}});
  }
  past_ += std::exchange(scanned_, 0);
  LeaveCall();
}

// What the body has not read is content, but for the mark behind one that is done.
bool OutputParser::LeaveBody() {
  const std::string_view rest = body_->rest();
  if (rest.size() <= past_) {
    past_ -= rest.size();  // it is there, unless it came with earlier text
  } else {
    text_.replace(0, std::exchange(past_, 0), rest);
  }
  part_ = body_->done() ? Part::kCallEnd : Part::kContent;
  return true;
}

// The body is all of held() up to scanned_, and then comes `end`.
bool OutputParser::EndBody(std::string_view end) {
  if (!body_->End()) {
    if (!body_->certain()) {
      part_ = Part::kCall;
      return true;
    }
    if (!end.empty()) body_->CloseCall();
  }
  GiveBody();
  past_ += end.size();
  part_ = Part::kContent;
  return true;
}

// What follows is content, without the white space beside the call.
void OutputParser::LeaveCall() {
  space_.clear();
  skips_space_ = true;
  at_start_ = may_think_ = false;
}

// Moves all of held() but its last `kept` bytes to `dst`.
void OutputParser::WriteAllBut(size_t kept, std::string& dst) {
  const size_t bytes = held().size() - kept;
  Write(held().substr(0, bytes), dst);
  past_ += bytes;
}

void OutputParser::Write(std::string_view text, std::string& dst) {
  if (skips_space_) text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  if (text.empty()) return;
  const size_t last = text.find_last_not_of(kSpace);
  if (last != std::string_view::npos) {
    dst += std::exchange(space_, {});
    dst += text.substr(0, last + 1);
    skips_space_ = false;
    if (part_ == Part::kContent) at_start_ = may_think_ = false;
    text.remove_prefix(last + 1);
  }
  space_ += text;
}

void OutputParser::EndAll() {
  if (part_ == Part::kBody) {
    // Behind a body that is certain, held() can only be the beginning of the end mark.
    if (!body_->certain()) body_->Push(held().substr(scanned_));
    scanned_ = held().size();
    EndBody("");
  }
  if (part_ == Part::kCall || (part_ == Part::kItem && is_first_)) {
    scanned_ = held().size();
    EndCall("");
  }
  // Behind arguments that streamed it is the beginning of a mark.
  const bool is_mark = part_ == Part::kArguments || part_ == Part::kCallRest ||
                       part_ == Part::kCallEnd || part_ == Part::kBetween;
  if (is_mark) past_ = text_.size();
  std::string& dst = part_ == Part::kThought ? parsed_.reasoning : parsed_.content;
  WriteAllBut(0, dst);
  dst += std::exchange(space_, {});
}

}  // namespace pinion
