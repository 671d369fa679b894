#include "engine/serve/http_reply.h"

#include <cstdio>
#include <utility>

#include "engine/base/strings.h"

namespace pinion {
namespace {

const char* ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Payload Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
  }
  return "Unknown";
}

void Call(const std::function<void()>& hook) {
  if (hook) hook();
}

}  // namespace

void BufferedReply::Head(int status, std::string_view content_type, std::string_view framing) {
  unsent_ = StrCat("HTTP/1.1 ", status, ' ', ReasonOf(status), "\r\nContent-Type: ", content_type,
                   "\r\n", framing, extra_headers_, status == 405 ? "Allow: GET, POST\r\n" : "",
                   "Connection: ", keep_alive_ ? "keep-alive" : "close", "\r\n\r\n");
}

void BufferedReply::AddHeader(std::string name, std::string value) {
  extra_headers_ += StrCat(name, ": ", value, "\r\n");
}

void BufferedReply::Send(int status, std::string_view content_type, std::string body) {
  if (ended_ || gone_) return;
  Head(status, content_type, StrCat("Content-Length: ", body.size(), "\r\n"));
  if (!head_) unsent_ += body;
  Finish();
}

void BufferedReply::Begin(std::string_view content_type) {
  if (ended_ || gone_) return;
  if (!chunked_) keep_alive_ = false;  // HTTP/1.0 has no chunks: closing marks the answer's end
  Head(200, content_type,
       StrCat("Cache-Control: no-cache\r\n", chunked_ ? "Transfer-Encoding: chunked\r\n" : ""));
  if (head_) return Finish();
  Call(hooks_.more);
}

void BufferedReply::Write(std::string_view text) {
  if (ended_ || gone_ || text.empty()) return;
  if (!chunked_) {
    unsent_ += text;
  } else {
    char size[24];
    std::snprintf(size, sizeof size, "%zx\r\n", text.size());
    (unsent_ += size) += text;
    unsent_ += "\r\n";
  }
  Call(hooks_.more);
  if (unsent_.size() > max_unsent_) Call(hooks_.overflow);
}

void BufferedReply::End() {
  if (ended_ || gone_) return;
  if (chunked_) unsent_ += "0\r\n\r\n";
  Finish();
}

void BufferedReply::MarkGone() {
  if (std::exchange(gone_, true)) return;
  if (auto callback = std::exchange(on_gone_, nullptr); callback && !ended_) callback();
}

void BufferedReply::Finish() {
  ended_ = true;
  on_gone_ = nullptr;
  Call(hooks_.more);
}

}  // namespace pinion
