#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/serve/http.h"
#include "engine/serve/memory_budget.h"

namespace pinion {

// The part of an answer that the handler has produced and the connection not yet written, as HTTP/1
// bytes. Handlers may keep it after connection and server are gone, so it refers to neither.
class BufferedReply final : public HttpReply {
 public:
  struct Hooks {
    std::function<void()> more;      // there is more to write, or the answer has ended
    std::function<void()> overflow;  // more is to be written, and too much of it is unsent
  };
  // `memory`: grows by the unsent bytes.
  BufferedReply(bool http11, bool keep_alive, size_t max_unsent_bytes, MemoryShare memory = {});

  void AddHeader(std::string name, std::string value) override;
  void Send(int status, std::string_view content_type, std::string body) override;
  void Begin(std::string_view content_type) override;
  void Write(std::string_view text) override;
  void End() override;
  void OnGone(std::function<void()> callback) override { on_gone_ = std::move(callback); }

  // The connection's side.
  void Attach(Hooks hooks) { hooks_ = std::move(hooks); }
  void Detach() { hooks_ = {}; }
  void MarkGone();                      // the client will read no more
  void AnswersHead() { head_ = true; }  // header as for GET, no body
  void CloseAfterwards() { keep_alive_ = false; }
  bool keep_alive() const { return keep_alive_; }
  bool ended() const { return ended_; }
  int status() const { return status_; }  // 0 before Send or Begin
  // Bytes to write next, empty if there are none now. They stay where they are, whatever the
  // handler adds, until Sent says that the first `count` of them are out.
  std::string_view Unsent();
  void Sent(size_t count);
  // Writes a comment if this is a stream of events that has not ended: proxies close what is
  // silent.
  void KeepAlive();

 private:
  void Head(int status, std::string_view content_type, std::string_view framing);
  void Finish();
  // Takes or gives back memory for the bytes that are held. False: there is none.
  bool Account();

  bool chunked_, keep_alive_;
  size_t max_unsent_;
  size_t largest_ = 0;  // part so far
  MemoryShare memory_;
  std::string extra_headers_;  // "Name: value\r\n"...
  std::string unsent_, sending_;
  size_t sent_ = 0;  // of sending_
  int status_ = 0;
  bool head_ = false, ended_ = false, gone_ = false, events_ = false;
  std::function<void()> on_gone_;
  Hooks hooks_;
};

}  // namespace pinion
