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
      return StepCall();
    case Part::kBody:
      return StepBody();
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
  body_ = rules_.calls->make_body(*rules_.tools);
  part_ = Part::kBody;
  return true;
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

// Text that is not a call, up to the end mark and with it.
bool OutputParser::StepCall() {
  const std::string_view end = rules_.calls->end;
  if (end.empty()) return false;
  bool ends = false;
  if (rules_.calls->json) {
    scanned_ += mark_.Take(held().substr(scanned_));
    ends = mark_.found();
  } else {
    const size_t at = held().find(end, scanned_);
    ends = at != std::string_view::npos;
    scanned_ = ends ? at : held().size() - HeldFor(held(), end);
  }
  return ends && EndCall(end);
}

// Text is held() up to scanned_, and then comes `end`.
bool OutputParser::EndCall(std::string_view end) {
  part_ = Part::kContent;
  Write(begin_, parsed_.content);
  WriteAllBut(held().size() - scanned_ - end.size(), parsed_.content);
  return true;
}

void OutputParser::GiveUpBody() {
  part_ = Part::kCall;
  scanned_ = 0;
  mark_ = JsonMark(rules_.calls->end);
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
    GiveUpBody();
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

// The text that the body has not read is content, but for the mark behind one that is done.
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
      GiveUpBody();
      return true;
    }
    if (!end.empty()) body_->CloseCall();
  }
  GiveBody();
  if (body_->done()) return LeaveBody();
  past_ += end.size();
  part_ = Part::kContent;
  return true;
}

// The text that follows is content, without the white space beside the call.
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
  if (part_ == Part::kCall) {
    scanned_ = held().size();
    EndCall("");
  }
  if (part_ == Part::kCallEnd) {
    StepCallEnd();
    if (part_ == Part::kCallEnd) past_ = text_.size();  // the beginning of the mark
  }
  std::string& dst = part_ == Part::kThought ? parsed_.reasoning : parsed_.content;
  WriteAllBut(0, dst);
  dst += std::exchange(space_, {});
}

}  // namespace pinion
