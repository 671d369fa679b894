#pragma once

// An engine that starts or ends the test, and what it makes of a list of requests.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/run/engine.h"

namespace pinion {

// The tokens of each request, by its id.
using Outputs = std::map<uint64_t, std::vector<int32_t>>;

inline std::unique_ptr<Engine> Start(const EngineOptions& options) {
  auto engine = Engine::Start(options);
  CHECK(engine) << engine.error().message;
  return *std::move(engine);
}

// Adds all requests at once and steps until none is left. Nothing of them may stay in the cache as
// used.
inline Outputs RunAll(Engine& engine, const std::vector<Request>& requests) {
  for (const Request& request : requests) {
    const Status added = engine.Add(request);
    CHECK(added) << added.error().message;
  }
  Outputs outputs;
  std::vector<TokenEvent> events;
  while (!engine.idle()) {
    events.clear();
    engine.Step(events);
    for (const TokenEvent& event : events) {
      if (event.has_token) outputs[event.request].push_back(event.token.id);
      EXPECT_EQ(event.output_tokens, outputs[event.request].size());
    }
  }
  EXPECT_EQ(engine.stats().blocks_used, 0u);
  return outputs;
}

}  // namespace pinion
