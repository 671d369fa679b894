#pragma once

#include <functional>
#include <string>

#include "engine/serve/http.h"
#include "engine/serve/link.h"

namespace pinion {

// The front end's end of the link, tied to its event loop: messages come by callback, and what the
// socket does not take yet is sent when it does.
class EngineLink {
 public:
  struct Callbacks {
    std::function<void(LinkMessage)> message;
    // The engine closed the link (`error` empty) or sent nonsense. The last call.
    std::function<void(const std::string& error)> gone;
  };

  // Owns `fd`; both outlive the server's Run.
  EngineLink(HttpServer& server, int fd, Callbacks callbacks);
  // Does nothing where the engine is gone: the end of the file says so.
  void Send(const LinkMessage& message);

 private:
  bool OnReadable();
  void WaitToFlush();

  HttpServer& server_;
  LinkSocket socket_;
  Callbacks callbacks_;
  bool flushing_ = false;
};

}  // namespace pinion
