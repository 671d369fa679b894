#include "engine/serve/http_parser.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <limits>
#include <utility>

#include "engine/base/strings.h"
#include "engine/serve/http_refusal.h"
#include "engine/serve/request_memory.h"

namespace pinion {

namespace http = boost::beast::http;
using boost::system::error_code;
using Text = boost::beast::string_view;

namespace {

std::string_view View(Text text) { return {text.data(), text.size()}; }

// Takes scheme and host off the target, and returns the host: any client may send the absolute form
// meant for proxies (RFC 9112, 3.2.2).
std::optional<std::string> TakeHost(std::string_view& target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!boost::beast::iequals(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    const std::string_view host = target.substr(0, target.find_first_of("/?"));
    target.remove_prefix(host.size());
    return std::string(host);
  }
  return std::nullopt;
}

// For an error's text.
std::string_view Shown(std::string_view value) { return value.substr(0, 100); }

}  // namespace

// Turns the reports of Beast's parser into a request. Its own limit of the header is per call, so a
// header in small pieces would pass it: the header is counted in Feed instead.
class HttpParser::Reader : public http::basic_parser<true> {
 public:
  Reader(const Limits& limits, std::shared_ptr<MemoryBudget> memory)
      : limits_(limits), budget_(std::move(memory)) {
    header_limit(std::numeric_limits<uint32_t>::max());
    body_limit(boost::none);
    SetClient("");
  }

  void SetClient(const std::string& client) {
    if (budget_) memory_ = *MemoryShare::Take(budget_, client, 0);
    error_code ignored;  // what counts is the refusal
    if (is_header_done()) CheckLength(ignored);
  }

  size_t Feed(std::string_view bytes) {
    size_t used = started_ ? 0 : SkipEmptyLines(bytes);
    while (started_ && used < bytes.size() && !is_done() && !refusal_) {
      const bool in_header = !is_header_done();
      const std::string_view rest =
          bytes.substr(used, in_header ? limits_.header_bytes - header_bytes_ : bytes.npos);
      error_code error;
      const size_t count = put(boost::asio::buffer(rest), error);
      used += count;
      if (in_header) header_bytes_ += count;
      if (error == http::error::need_more) {
        CheckUnread(in_header, rest.size() - count);
        break;
      }
      if (error && !refusal_)
        refusal_ = MakeRefusal(400, StrCat("not an HTTP/1 request: ", error.message()));
      if (in_header && is_header_done()) break;
    }
    return used;
  }

  HttpHead head_;
  std::string body_;
  MemoryShare memory_;
  std::optional<HttpRefusal> refusal_;

 private:
  // Some clients end a body with an empty line too many (RFC 9112, 2.2).
  size_t SkipEmptyLines(std::string_view bytes) {
    size_t used = 0;
    while (bytes.substr(used).starts_with("\r\n")) used += 2;
    header_bytes_ += used;
    started_ = used < bytes.size() && bytes.substr(used) != "\r";
    CheckUnread(/*in_header=*/true, 0);
    return used;
  }

  // Bytes that the parser wants to see again with what follows them: the caller keeps them.
  void CheckUnread(bool in_header, size_t unread) {
    if (in_header && header_bytes_ + unread >= limits_.header_bytes)
      refusal_ =
          MakeRefusal(431, StrCat("the request header exceeds ", limits_.header_bytes, " bytes"));
    else if (!in_header && unread > limits_.header_bytes)
      refusal_ = MakeRefusal(400, "not an HTTP/1 request: a chunk's header does not end");
  }

  void Refuse(HttpRefusal refusal, error_code& error) {
    refusal_ = std::move(refusal);
    error = http::error::end_of_stream;  // any: only that the parser stops counts
  }

  void on_request_impl(http::verb, Text method, Text target, int version, error_code&) override {
    std::string_view relative = View(target);
    head_.host = TakeHost(relative);
    const size_t mark = relative.find('?');
    head_.method = View(method);
    head_.path = mark == 0 || relative.empty() ? "/" : relative.substr(0, mark);
    if (mark != relative.npos) head_.query = relative.substr(mark + 1);
    head_.http11 = version >= 11;
  }
  void on_response_impl(int, Text, int, error_code&) override {}

  void on_field_impl(http::field, Text name, Text value, error_code& error) override {
    if (is_header_done()) return;  // a trailer: nothing here reads it
    if (++fields_ > limits_.header_fields)
      return Refuse(MakeRefusal(431, StrCat("the request header has more than ",
                                            limits_.header_fields, " fields")),
                    error);
    head_.headers.Add(std::string(View(name)), std::string(View(value)));
  }
  void on_header_impl(error_code& error) override {
    const HttpHeaders& headers = head_.headers;
    // Any other coding would leave the body's end unknown, or hand a handler what it cannot read:
    // the bytes of the body would be taken for the next request (RFC 9112, 6.1 and 6.3).
    const std::string_view coding = headers.Find("Transfer-Encoding");
    if (const size_t count = headers.Count("Transfer-Encoding"); count > 0) {
      if (!head_.http11)
        return Refuse(MakeRefusal(400,
                                  "Transfer-Encoding in a request of HTTP/1.0; send a "
                                  "Content-Length, or HTTP/1.1"),
                      error);
      if (count > 1 || !boost::beast::iequals(coding, "chunked"))
        return Refuse(MakeRefusal(501, StrCat("Transfer-Encoding is '", Shown(coding),
                                              "', want chunked or none")),
                      error);
    }
    const std::string_view packed = headers.Find("Content-Encoding");
    if (!packed.empty() && !boost::beast::iequals(packed, "identity"))
      Refuse(MakeRefusal(415, StrCat("Content-Encoding is '", Shown(packed),
                                     "', which this server does not read; send the body as it is")),
             error);
  }

  void on_body_init_impl(const boost::optional<uint64_t>&, error_code& error) override {
    CheckLength(error);
  }
  size_t on_body_impl(Text body, error_code& error) override { return Append(View(body), error); }
  void on_chunk_header_impl(uint64_t size, Text, error_code& error) override {
    if (size > limits_.body_bytes - body_.size()) RefuseSize(error);
  }
  size_t on_chunk_body_impl(uint64_t, Text body, error_code& error) override {
    return Append(View(body), error);
  }
  void on_finish_impl(error_code&) override {}

  // A length that is announced is enough to refuse the body before the client has sent it.
  void CheckLength(error_code& error) {
    const auto length = content_length();
    if (!length) return;
    if (*length > limits_.body_bytes) return RefuseSize(error);
    most_bytes_ = *length;
    if (budget_ && *length > budget_->client_limit()) RefuseMemory(*length, error);
  }

  size_t Append(std::string_view piece, error_code& error) {
    const size_t size = body_.size() + piece.size();
    if (size > limits_.body_bytes) {
      RefuseSize(error);
    } else if (size > memory_.bytes() && !GrowTo(size)) {
      RefuseMemory(size, error);
    } else {
      body_ += piece;
      return piece.size();
    }
    return 0;
  }

  // Doubles, as the string itself would, but not beyond what can come, and the budget knows of it.
  bool GrowTo(size_t size) {
    const size_t most = budget_ ? std::min(most_bytes_, budget_->client_limit()) : most_bytes_;
    const size_t capacity = std::max(size, std::min(2 * memory_.bytes(), most));
    if (!memory_.Grow(capacity - memory_.bytes())) return false;
    std::string grown;
    grown.reserve(capacity);
    grown += body_;
    body_ = std::move(grown);
    return true;
  }

  void RefuseSize(error_code& error) {
    Refuse(MakeRefusal(413, StrCat("the request body exceeds ", limits_.body_bytes,
                                   " bytes; send less text per request, or start the server with a "
                                   "larger --max-body-size")),
           error);
  }

  void RefuseMemory(size_t size, error_code& error) {
    Refuse(MakeRefusal(OutOfMemory(memory_, size - memory_.bytes(),
                                   StrCat("the bytes of a request body of ", size, " bytes"))),
           error);
  }

  const Limits limits_;
  const std::shared_ptr<MemoryBudget> budget_;
  bool started_ = false;  // the request line has
  size_t header_bytes_ = 0, fields_ = 0;
  size_t most_bytes_ = limits_.body_bytes;  // of the body: what its header announces
};

HttpParser::HttpParser(const Limits& limits, std::shared_ptr<MemoryBudget> memory)
    : reader_(std::make_unique<Reader>(limits, std::move(memory))) {}
HttpParser::~HttpParser() = default;

size_t HttpParser::Feed(std::string_view bytes) { return reader_->Feed(bytes); }
bool HttpParser::header_done() const { return reader_->is_header_done(); }
bool HttpParser::done() const { return reader_->is_done(); }
const std::optional<HttpRefusal>& HttpParser::refusal() const { return reader_->refusal_; }
void HttpParser::SetClient(const std::string& client) { reader_->SetClient(client); }
HttpHead HttpParser::TakeHead() { return std::move(reader_->head_); }
bool HttpParser::keep_alive() const { return reader_->keep_alive(); }
std::string HttpParser::TakeBody() { return std::move(reader_->body_); }
MemoryShare HttpParser::TakeMemory() { return std::move(reader_->memory_); }

bool HttpParser::wants_continue() const {
  const HttpHead& head = reader_->head_;
  return !done() && head.http11 &&
         boost::beast::iequals(head.headers.Find("Expect"), "100-continue");
}

}  // namespace pinion
