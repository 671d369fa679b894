#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace pinion::harness {

// A stream of server-sent events, cut into the data of each event. Lines may end in LF, CRLF or CR
// and be split anywhere between two calls; comments and other fields are skipped. Of an event
// beyond kMostBytes only the part so far is handed on, which bounds the reader's memory.
// Source: WHATWG HTML, "Server-sent events", sec. 9.2.6.
class SseReader {
 public:
  explicit SseReader(std::function<void(std::string_view data)> on_event)
      : on_event_(std::move(on_event)) {}

  static constexpr size_t kMostBytes = size_t{16} << 20;

  void Feed(std::string_view bytes);

 private:
  void TakeLine(std::string_view line);
  void EndEvent();  // hands on the event so far

  std::function<void(std::string_view data)> on_event_;
  std::string line_, data_;
  bool has_data_ = false, after_cr_ = false;
};

}  // namespace pinion::harness
