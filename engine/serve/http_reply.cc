#include "engine/serve/http_reply.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "engine/base/strings.h"
#include "engine/serve/http_refusal.h"
#include "engine/serve/request_memory.h"

namespace pinion {
namespace {

constexpr size_t kFreeBytes = 16 << 10;  // of a reply, uncounted: small answers come and go
constexpr size_t kStepBytes = 64 << 10;  // what is above, in steps

const char* ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
  }
  return "Unknown";
}

void Call(const std::function<void()>& hook) {
  if (hook) hook();
}

}  // namespace

BufferedReply::BufferedReply(bool http11, bool keep_alive, size_t max_unsent_bytes,
                             MemoryShare memory)
    : chunked_(http11),
      keep_alive_(keep_alive),
      max_unsent_(max_unsent_bytes),
      memory_(std::move(memory)) {}

void BufferedReply::AddHeader(std::string name, std::string value) {
  extra_headers_ += StrCat(name, ": ", value, "\r\n");
}

void BufferedReply::Head(int status, std::string_view content_type, std::string_view framing) {
  status_ = status;
  unsent_ = StrCat("HTTP/1.1 ", status, ' ', ReasonOf(status), "\r\n");
  if (status != 204) unsent_ += StrCat("Content-Type: ", content_type, "\r\n", framing);
  unsent_ +=
      StrCat(extra_headers_, "Connection: ", keep_alive_ ? "keep-alive" : "close", "\r\n\r\n");
}

void BufferedReply::Send(int status, std::string_view content_type, std::string body) {
  if (ended_ || gone_) return;
  const auto put = [this](int code, std::string_view type, const std::string& text) {
    Head(code, type, StrCat("Content-Length: ", text.size(), "\r\n"));
    if (!head_ && code != 204) unsent_ += text;
    return Account();
  };
  if (!put(status, content_type, body)) {
    const HttpRefusal refusal = MakeRefusal(
        OutOfMemory(memory_, body.size(), StrCat("the bytes of an answer of ", body.size())));
    for (const auto& [name, value] : refusal.headers) AddHeader(name, value);
    put(refusal.status, "application/json", refusal.body);
  }
  Finish();
}

void BufferedReply::Begin(std::string_view content_type) {
  if (ended_ || gone_) return;
  if (!chunked_) keep_alive_ = false;  // HTTP/1.0 has no chunks: closing marks the answer's end
  Head(200, content_type,
       StrCat("Cache-Control: no-cache\r\n", chunked_ ? "Transfer-Encoding: chunked\r\n" : ""));
  if (head_) return Finish();
  events_ = content_type.starts_with("text/event-stream");
  Call(hooks_.more);
}

void BufferedReply::Write(std::string_view text) {
  if (ended_ || gone_ || text.empty()) return;
  // A part may be larger than the limit by itself, which says nothing of how fast the client reads.
  const bool is_slow = unsent_.size() > max_unsent_ + largest_;
  largest_ = std::max(largest_, text.size());
  if (!chunked_) {
    unsent_ += text;
  } else {
    char size[24];
    std::snprintf(size, sizeof size, "%zx\r\n", text.size());
    (unsent_ += size) += text;
    unsent_ += "\r\n";
  }
  Call(hooks_.more);
  if (is_slow || !Account()) Call(hooks_.overflow);
}

void BufferedReply::KeepAlive() {
  if (events_) Write(": keep-alive\n\n");
}

void BufferedReply::End() {
  if (ended_ || gone_) return;
  if (chunked_) unsent_ += "0\r\n\r\n";
  Finish();
}

void BufferedReply::MarkGone() {
  if (std::exchange(gone_, true)) return;
  // The handler may keep the reply for long; the rest will not be read.
  unsent_ = {};
  Sent(sending_.size() - sent_);
  if (auto callback = std::exchange(on_gone_, nullptr); callback && !ended_) callback();
}

void BufferedReply::Finish() {
  ended_ = true;
  on_gone_ = nullptr;
  Call(hooks_.more);
}

std::string_view BufferedReply::Unsent() {
  if (sending_.empty()) sending_.swap(unsent_);
  return std::string_view(sending_).substr(sent_);
}

void BufferedReply::Sent(size_t count) {
  sent_ += count;
  if (sent_ < sending_.size()) return;
  // Its memory is reused for the next part, unless it is much.
  sending_.clear();
  if (sending_.capacity() > kStepBytes) sending_.shrink_to_fit();
  sent_ = 0;
  Account();
}

bool BufferedReply::Account() {
  const size_t held = unsent_.size() + sending_.size();
  const size_t wanted = held <= kFreeBytes ? 0 : (held / kStepBytes + 1) * kStepBytes;
  if (wanted > memory_.bytes()) return memory_.Grow(wanted - memory_.bytes());
  memory_.ShrinkTo(wanted);
  return true;
}

}  // namespace pinion
