#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/run/engine.h"
#include "engine/serve/http.h"

namespace pinion {

// The front end's state at one moment.
struct FrontCounts {
  size_t request_memory_bytes = 0;  // taken of the budget
  uint64_t memory_rejections = 0;   // requests that found none, since the start
  size_t connections = 0;
  size_t pool_queued = 0;  // requests that wait for a worker thread
  size_t pending = 0;      // choices that wait for the engine to restart
  bool engine_up = false;
};

// The metrics served at /metrics, under vLLM's names if they mean the same. Latencies are measured
// in the front end, from a request's arrival there. Thread rule: one thread.
class ServeMetrics {
 public:
  // `engine` below is the number of one of `engines`, each of which has series of its own.
  explicit ServeMetrics(const std::string& model_name, size_t engines = 1);
  ~ServeMetrics();

  // The engine's statistics after a step; totals only grow, except that a new process begins at 0.
  void SetEngine(size_t engine, const EngineStats& stats);
  void AddFirstToken(size_t engine, double seconds);         // since arrival
  void AddInterTokenLatency(size_t engine, double seconds);  // between two tokens of one sequence

  struct Finished {
    std::string reason;  // "stop", "length", "abort", "error"
    double e2e_seconds = 0, queue_seconds = 0, first_token_seconds = 0;
    size_t prompt_tokens = 0, output_tokens = 0, cached_tokens = 0, max_tokens = 0, preemptions = 0;
    double prefill_seconds = 0, decode_seconds = 0;  // from the first step; from the first token
  };
  void AddFinished(size_t engine, const Finished& sequence);

  // A request whose choices have all ended.
  void AddRequest(size_t engine, size_t n, size_t longest_output);

  // Facts about the model, once it is loaded; cache_configs: labels, for each engine.
  void SetModel(size_t max_model_len,
                const std::vector<std::map<std::string, std::string>>& cache_configs);
  void SetSleepLevel(int level);  // 0: awake
  // Requests that wait for an operation of sleep mode ("sleep", "wake"); one that has waited.
  void SetAwaitedRest(const char* operation, size_t requests);
  void AddRest(const char* operation, double seconds);
  // See HttpMetrics.
  void AddExchange(const AccessRecord& exchange, bool known);

  void SetFront(const FrontCounts& counts);
  void AddRejected(const char* reason);  // a request that found no room, by the limit's name
  void AddRestart();                     // of the engine process
  void AddPrepared(double seconds);      // from a request's arrival to its tokens
  void AddDeadlineExceeded();
  void AddUnknownFields(const char* outcome, size_t fields);  // "refused", "ignored"

  // Prometheus text format 0.0.4.
  std::string Render() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pinion
