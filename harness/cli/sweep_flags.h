#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/cli/engine_flags.h"
#include "harness/cli/sweep_replay.h"

namespace pinion::harness {

// The command line of `pinion sweep`; flags that were not given are empty.
struct SweepFlags {
  EngineFlags engine;
  ReplayFlags replay;
  std::string definition_file, out, machine, probe, workload;
  bool quick = false, resume = false, json = false, plan = false;
  std::optional<std::string> node_bandwidth, memory_channels, core_peak;  // stated ceilings
  std::optional<std::string> budget, trial_limit, strategy;
  std::optional<double> epsilon, price_per_hour, price_per_kwh;
  std::optional<int> prompt_len, output_len, num_prompts, rounds;
  std::optional<std::vector<int>> concurrency, replicas;
  std::optional<std::vector<double>> request_rate;
  std::optional<bool> batch;
  std::optional<std::vector<std::string>> objectives, slo;
  std::vector<std::string> engines;
  std::optional<std::string> max_memory;
  std::optional<int> max_cores;
  std::string launcher, image, node_memory;  // of a fleet
  int nodes = 0, node_cpus = 0;
  bool manifest = false, continued = false;
  std::vector<uint16_t> watch_port;  // the port of --watch; empty: any free one

  void AddTo(CLI::App& command);
  // Call after parsing, while the command exists.
  bool watched() const { return watch_->count() > 0; }

 private:
  void AddJob(CLI::App& command);
  void AddLoad(CLI::App& command);
  void AddSearch(CLI::App& command);
  void AddPrediction(CLI::App& command);
  void AddFleet(CLI::App& command);

  CLI::Option* watch_ = nullptr;
};

}  // namespace pinion::harness
