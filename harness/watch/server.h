#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/base/result.h"
#include "harness/watch/views.h"

namespace pinion::harness {

// The views of a running sweep for browsers on this machine: GET / is the page, GET /events its
// parts as server-sent events, GET /results.json the figures so far. Listens on the loopback
// address alone and answers nothing else. Has a thread of its own, which sleeps between requests.
class WatchServer {
 public:
  // `port` 0: any free one. Errors name the port.
  static Result<std::unique_ptr<WatchServer>> Start(const std::string& folder, PageViews views,
                                                    uint16_t port);
  virtual ~WatchServer() = default;  // gives browsers up to 1 s to receive pending data

  virtual uint16_t port() const = 0;

  // Sends every watching browser the current contents of the store; `state` is one line of text for
  // its head. Reads the store only if a browser is watching, and never waits for one. `finished`:
  // this is the last update.
  virtual void Tell(const std::string& state, bool finished) = 0;
};

}  // namespace pinion::harness
