#pragma once

// Engines that share work: one computes prompts, the other goes on behind them.

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/json.h"
#include "engine/base/strings.h"
#include "engine/run/engine.h"
#include "engine/run/prefill_role.h"
#include "tests/engine/run/started_engine.h"
#include "tests/engine/run/test_target.h"
#include "tests/test_data.h"

namespace pinion {

using Role = PrefillOptions::Role;

inline constexpr int kSplitBlock = 16;

inline std::string SocketPath(const char* name) {
  return StrCat("unix:", ::testing::TempDir(), "pinion-", getpid(), "-", name);
}

inline EngineOptions SplitOptions(const std::string& model) {
  setenv("OMP_NUM_THREADS", "1", 1);  // what nobind goes by
  EngineOptions options;
  options.model =
      model.find(':') == model.npos ? StrCat(tests::TestData(), "/models/", model) : model;
  options.dtype = "float32";
  options.threads_bind = "nobind";
  options.block_size = kSplitBlock;
  options.max_model_len = 160;
  options.max_num_seqs = 6;
  options.max_num_batched_tokens = 64;
  options.kv_cache_bytes = 8 << 20;
  testing::SetTestTarget(options);
  return options;
}

inline EngineOptions WithRole(EngineOptions options, Role role, const std::string& address) {
  options.prefill.role = role;
  if (role == Role::kPrefill) options.prefill.listen = address;
  if (role == Role::kDecode) options.prefill.from = {address};
  return options;
}

// An engine on a thread of its own, which steps whenever it has something to do.
class Neighbour {
 public:
  explicit Neighbour(const EngineOptions& options) {
    thread_ = std::thread([this, options] {
      auto engine = Engine::Start(options);
      CHECK(engine) << engine.error().message;
      ready_ = true;
      std::vector<TokenEvent> events;
      while (!ending_) {
        if ((*engine)->wait_ms() != 0) {
          pollfd wait{(*engine)->wake_fd(), POLLIN, 0};
          poll(&wait, 1, 5);
        }
        if (stopped_) continue;
        (*engine)->Step(events);
        EXPECT_TRUE(events.empty()) << "an order is nobody's request";
        stats_orders_ = (*engine)->stats().transfer.orders;
      }
      stats_ = (*engine)->stats();
    });
    while (!ready_) std::this_thread::yield();
  }
  ~Neighbour() { End(); }

  EngineStats End() {
    ending_ = true;
    if (thread_.joinable()) thread_.join();
    return stats_;
  }
  void Stop(bool stopped) { stopped_ = stopped; }
  uint64_t orders() const { return stats_orders_; }

 private:
  std::atomic<bool> ready_ = false, ending_ = false, stopped_ = false;
  std::atomic<uint64_t> stats_orders_ = 0;
  EngineStats stats_;
  std::thread thread_;
};

// The state that a decoding engine reports of the only one that computes its prompts.
inline Json PeerInfo(const Engine& engine) {
  return engine.ServerInfo().Find("prefill")->Find("prompts_from")->array()[0];
}

inline bool IsUp(const Engine& engine) { return PeerInfo(engine).Find("up")->boolean(); }

// An engine that has others compute its prompts, once it has found them.
inline std::unique_ptr<Engine> StartDecoding(const EngineOptions& options) {
  auto engine = Start(options);
  while (!IsUp(*engine)) std::this_thread::yield();
  return engine;
}

inline std::vector<Request> Prompts(size_t count, size_t vocabulary = 400) {
  std::mt19937 rng(20261126);
  std::vector<int32_t> common(37);
  for (int32_t& token : common) token = static_cast<int32_t>(3 + rng() % vocabulary);
  std::vector<Request> requests;
  for (uint64_t id = 0; id < count; ++id) {
    Request request;
    request.id = id;
    if (id % 3 == 0) request.prompt_ids = common;
    for (size_t i = 0; i < 2 + (id * 13) % 90; ++i)
      request.prompt_ids.push_back(static_cast<int32_t>(3 + rng() % vocabulary));
    request.params.max_tokens = 20;
    request.params.ignore_eos = true;
    requests.push_back(std::move(request));
  }
  return requests;
}

// Returns how many tokens came in a step behind another one of their request.
inline size_t StepAll(Engine& engine, Outputs& outputs) {
  std::vector<TokenEvent> events;
  size_t behind = 0;
  while (!engine.idle()) {
    if (const int ms = engine.wait_ms(); ms != 0) {
      pollfd wait{engine.wake_fd(), POLLIN, 0};
      poll(&wait, 1, ms < 0 ? 1000 : ms);
    }
    events.clear();
    engine.Step(events);
    std::set<uint64_t> requests;
    for (const TokenEvent& event : events) {
      if (!event.has_token) continue;
      outputs[event.request].push_back(event.token.id);
      if (!requests.insert(event.request).second) ++behind;
    }
  }
  return behind;
}

inline Outputs AnswersOf(Engine& engine, const std::vector<Request>& requests) {
  for (const Request& request : requests) {
    const Status added = engine.Add(request);
    CHECK(added) << added.error().message;
  }
  Outputs outputs;
  StepAll(engine, outputs);
  EXPECT_EQ(engine.stats().blocks_used, 0u);
  return outputs;
}

inline Outputs AloneAnswers(const EngineOptions& options, const std::vector<Request>& requests) {
  const auto engine = Start(options);
  Outputs outputs;
  for (const Request& request : requests) outputs.merge(AnswersOf(*engine, {request}));
  return outputs;
}

}  // namespace pinion
