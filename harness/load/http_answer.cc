#include "harness/load/http_answer.h"

#include <boost/beast/http/basic_parser.hpp>
#include <limits>
#include <utility>

#include "engine/base/strings.h"

namespace pinion::harness {

namespace http = boost::beast::http;
using boost::system::error_code;

// Beast's own limit of the header is per call, so a header in small pieces would pass it: the
// header is counted here instead.
class HttpAnswer::Reader : public http::basic_parser<false> {
 public:
  explicit Reader(std::function<void(std::string_view)> on_body) : on_body_(std::move(on_body)) {
    header_limit(std::numeric_limits<uint32_t>::max());
    body_limit(boost::none);
  }

  size_t Feed(std::string_view bytes) {
    size_t used = 0;
    while (used < bytes.size() && !is_done() && error_.empty()) {
      const bool in_header = !is_header_done();
      const std::string_view rest =
          bytes.substr(used, in_header ? kMostHeaderBytes - header_bytes_ : bytes.npos);
      error_code error;
      const size_t count = put(boost::asio::buffer(rest), error);
      used += count;
      if (in_header) header_bytes_ += count;
      if (error == http::error::need_more) {
        CheckUnread(in_header, rest.size() - count);
        break;
      }
      if (error) error_ = error.message();
    }
    return used;
  }

  void End(const std::string& failure) {
    if (is_done() || !error_.empty()) return;
    error_ = failure;
    if (!failure.empty()) return;
    error_code error = http::error::end_of_stream;
    if (got_some()) put_eof(error);
    if (error) error_ = error.message();
  }

  int status_ = 0;
  std::string error_;

 private:
  using Text = boost::beast::string_view;

  // Bytes that the parser wants to see again with what follows them: the caller keeps them.
  void CheckUnread(bool in_header, size_t unread) {
    if (in_header && header_bytes_ + unread >= kMostHeaderBytes)
      error_ = StrCat("its header exceeds ", kMostHeaderBytes, " bytes");
    else if (!in_header && unread > kMostHeaderBytes)
      error_ = "a chunk's header does not end";
  }

  void on_request_impl(http::verb, Text, Text, int, error_code&) override {}
  void on_response_impl(int code, Text, int, error_code&) override { code_ = code; }
  void on_field_impl(http::field, Text, Text, error_code&) override {}
  void on_header_impl(error_code&) override { status_ = code_; }
  void on_body_init_impl(const boost::optional<uint64_t>&, error_code&) override {}
  size_t on_body_impl(Text body, error_code&) override { return Give(body); }
  void on_chunk_header_impl(uint64_t, Text, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, Text body, error_code&) override { return Give(body); }
  void on_finish_impl(error_code&) override {}

  size_t Give(Text body) {
    if (!body.empty()) on_body_({body.data(), body.size()});
    return body.size();
  }

  const std::function<void(std::string_view)> on_body_;
  size_t header_bytes_ = 0;
  int code_ = 0;
};

HttpAnswer::HttpAnswer(std::function<void(std::string_view)> on_body)
    : reader_(std::make_unique<Reader>(std::move(on_body))) {}
HttpAnswer::~HttpAnswer() = default;

size_t HttpAnswer::Feed(std::string_view bytes) { return reader_->Feed(bytes); }
void HttpAnswer::End(const std::string& failure) { reader_->End(failure); }
int HttpAnswer::status() const { return reader_->status_; }
bool HttpAnswer::done() const { return reader_->is_done(); }
const std::string& HttpAnswer::error() const { return reader_->error_; }
bool HttpAnswer::keep_alive() const { return done() && reader_->keep_alive(); }

}  // namespace pinion::harness
