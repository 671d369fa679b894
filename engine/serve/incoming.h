#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include "engine/serve/frontend.h"
#include "engine/serve/prepare.h"
#include "engine/serve/worker_pool.h"

namespace pinion {

// A request on its way through the pool. Destroyed on the event loop, where its members belong.
struct Frontend::Incoming {
  Incoming(std::set<Incoming*>& all, double limit_s, HttpRequest request, Reply reply,
           Admission::Ticket ticket)
      : all(all),
        request(std::move(request)),
        reply(std::move(reply)),
        ticket(std::move(ticket)),
        limit_s(limit_s) {
    all.insert(this);
  }
  ~Incoming() { all.erase(this); }
  int64_t deadline_ns() const {
    constexpr double kLongestS = 1e9;  // in nanoseconds, far from an int64_t's end
    return request.arrived_ns + static_cast<int64_t>(std::min(limit_s.load(), kLongestS) * 1e9);
  }

  std::set<Incoming*>& all;  // the event loop's
  HttpRequest request;
  Reply reply;
  Admission::Ticket ticket;
  std::atomic<double> limit_s;     // for the whole answer; a worker lowers it
  std::atomic<bool> over = false;  // the client has left, or was told that the time is over
};

// While `worker` works on one request.
inline Preparer::RenderChat RenderOn(WorkerPool::Worker& worker) {
  return [&worker](const ChatRequest& chat) { return worker.Render(chat); };
}

}  // namespace pinion
