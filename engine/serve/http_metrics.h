#pragma once

#include <memory>
#include <string>

#include "engine/serve/http.h"

namespace pinion {

// Counts exchanges under the names of the instrumentation that vLLM's server uses. Thread rule: one
// thread.
class HttpMetrics {
 public:
  HttpMetrics();
  ~HttpMetrics();

  // `known`: the server has an endpoint of this path. All others share one label: clients choose
  // paths, and each new label would be kept for good.
  void Add(const AccessRecord& exchange, bool known);
  std::string Render() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pinion
