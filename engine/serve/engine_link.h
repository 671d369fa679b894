#pragma once

#include <functional>
#include <string>

#include "engine/serve/http.h"
#include "engine/serve/link.h"

namespace pinion {

// The front end's side of the link, driven by its event loop: messages arrive by callback, and
// bytes that the socket cannot take yet are sent when it can.
class EngineLink {
 public:
  struct Callbacks {
    std::function<void(LinkMessage)> message;
    // The last call: the engine closed the link (`error` empty) or broke the protocol.
    std::function<void(const std::string& error)> closed;
  };

  // Owns `fd`. The server outlives the object, or at least Close.
  EngineLink(HttpServer& server, int fd, Callbacks callbacks);
  ~EngineLink() { Close(); }
  // Does nothing once the engine is gone: `closed` reports that.
  void Send(const LinkMessage& message);
  // No callback comes after this. From inside one, Close rather than destroy.
  void Close();

 private:
  bool OnReadable();
  void WaitToFlush();

  HttpServer& server_;
  LinkSocket socket_;
  Callbacks callbacks_;
  bool flushing_ = false, closed_ = false;
};

}  // namespace pinion
