#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "engine/base/result.h"
#include "engine/serve/access_log.h"
#include "engine/serve/gate.h"
#include "engine/serve/http.h"
#include "engine/serve/memory_budget.h"
#include "engine/serve/options.h"

namespace pinion {

// From the server's options to those of its HTTP server, with the objects that those refer to: the
// gate and the access log. Outlives the HTTP server.
class HttpSetup {
 public:
  // `memory`: for bodies and unsent answers; `count`: told every exchange.
  // Raises the limit of descriptors as well, and says so.
  static Result<std::unique_ptr<HttpSetup>> Make(const ServeOptions& options,
                                                 std::shared_ptr<MemoryBudget> memory,
                                                 std::function<void(const AccessRecord&)> count);
  HttpSetup(const HttpSetup&) = delete;
  HttpSetup& operator=(const HttpSetup&) = delete;

  const HttpOptions& options() const { return http_; }
  // The access log's file was renamed: for SIGHUP.
  void FollowLogName() {
    if (log_) log_->FollowName();
  }

 private:
  HttpSetup() = default;

  HttpOptions http_;
  std::optional<Gate> gate_;
  std::unique_ptr<AccessLog> log_;
};

}  // namespace pinion
