#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "engine/run/engine.h"
#include "engine/serve/metrics.h"

namespace prometheus {
class Registry;
}

namespace pinion {

// The metrics of one engine, whose number is their label `engine`, as in vLLM. Its steps, which
// vLLM does not tell of, are added to those of the others: their series have no such label. For
// metrics.cc alone.
class EngineMetrics {
 public:
  // The registry outlives the object.
  EngineMetrics(prometheus::Registry& registry, const std::string& model_name, size_t engine);
  ~EngineMetrics();

  // As in ServeMetrics.
  void SetStats(const EngineStats& stats);
  void AddFirstToken(double seconds);
  void AddInterTokenLatency(double seconds);
  void AddFinished(const ServeMetrics::Finished& sequence);
  void AddRequest(size_t n, size_t longest_output);
  void SetModel(size_t max_model_len, const std::map<std::string, std::string>& cache_config);
  void SetSleepLevel(int level);
  // Choices that wait in the front end, beside those that wait in the engine.
  void SetFrontWaiting(size_t choices);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pinion
