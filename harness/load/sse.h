#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace pinion::harness {

// A stream of server-sent events, cut into the data of each event. Lines may end in LF, CRLF or CR
// and be split anywhere between two calls; comments and other fields are skipped.
// Source: WHATWG HTML, "Server-sent events", sec. 9.2.6.
class SseReader {
 public:
  explicit SseReader(std::function<void(std::string_view data)> on_event)
      : on_event_(std::move(on_event)) {}

  void Feed(std::string_view bytes);

 private:
  void TakeLine(std::string_view line);

  std::function<void(std::string_view data)> on_event_;
  std::string line_, data_;
  bool has_data_ = false, after_cr_ = false;
};

}  // namespace pinion::harness
