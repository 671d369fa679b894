#include "harness/load/sse.h"

namespace pinion::harness {

void SseReader::Feed(std::string_view bytes) {
  while (!bytes.empty()) {
    if (after_cr_ && bytes[0] == '\n') bytes.remove_prefix(1);  // the rest of a CRLF
    after_cr_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    if (end == std::string_view::npos) {
      line_ += bytes;
      if (line_.size() + data_.size() > kMostBytes) EndEvent();
      return;
    }
    after_cr_ = bytes[end] == '\r';
    line_ += bytes.substr(0, end);
    TakeLine(line_);
    line_.clear();
    if (data_.size() > kMostBytes) EndEvent();
    bytes.remove_prefix(end + 1);
  }
}

void SseReader::EndEvent() {
  TakeLine(line_);
  TakeLine("");
  line_.clear();
}

void SseReader::TakeLine(std::string_view line) {
  if (line.empty()) {
    if (has_data_) on_event_(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  const size_t colon = line.find(':');
  if (line.substr(0, colon) != "data") return;
  std::string_view value = colon == std::string_view::npos ? "" : line.substr(colon + 1);
  if (!value.empty() && value[0] == ' ') value.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
}

}  // namespace pinion::harness
