#include "engine/serve/engine_link.h"

#include <utility>

namespace pinion {

EngineLink::EngineLink(HttpServer& server, int fd, Callbacks callbacks)
    : server_(server), socket_(fd), callbacks_(std::move(callbacks)) {
  server_.WatchReadable(socket_.fd(), [this] { return OnReadable(); });
}

void EngineLink::Close() {
  if (!std::exchange(closed_, true)) server_.Unwatch(socket_.fd());
}

void EngineLink::Send(const LinkMessage& message) {
  if (closed_) return;
  socket_.Send(message);
  WaitToFlush();
}

void EngineLink::WaitToFlush() {
  if (!socket_.has_unsent() || std::exchange(flushing_, true)) return;
  server_.OnceWritable(socket_.fd(), [this] {
    flushing_ = false;
    // Closed meanwhile, its descriptor's number may soon be another's.
    if (!closed_ && socket_.Flush()) WaitToFlush();
  });
}

bool EngineLink::OnReadable() {
  const bool open = socket_.Receive();
  for (;;) {
    auto message = socket_.Next();
    if (!message) {
      callbacks_.closed(message.error().message);
      return false;
    }
    if (!*message) break;
    callbacks_.message(std::move(**message));
    if (closed_) return false;
  }
  if (!open) callbacks_.closed("");
  return open;
}

}  // namespace pinion
