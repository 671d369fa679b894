#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "engine/base/result.h"
#include "harness/space/definition.h"

namespace pinion::harness {

// `pinion sweep --replay FILE`: the search on recorded numbers, without an engine.
struct ReplayFlags {
  std::string file, metric, planted;
  std::optional<int> seeds;

  void AddTo(CLI::App& command);
  bool given() const { return !file.empty(); }
};

// `definition` gives strategy, epsilon, rounds and seed; `budget_s` is 0 without --budget.
Status RunReplayCommand(const ReplayFlags& flags, Definition definition, double budget_s,
                        bool json);

}  // namespace pinion::harness
