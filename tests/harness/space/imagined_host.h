#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/checkpoint/preset.h"
#include "engine/run/start.h"
#include "harness/space/expand.h"
#include "kernels/isa.h"
#include "tests/engine/host/imagined.h"

// Machines that are imagined, and definitions expanded for them.

namespace pinion::harness {

inline Host Imagine(const char* synthetic) {
  Host host;
  auto machine = ImagineMachine(synthetic);
  EXPECT_TRUE(machine) << synthetic;
  host.machine = *machine;
  auto budget = ComputeBudget(host.machine);
  EXPECT_TRUE(budget) << synthetic;
  host.budget = *budget;
  host.budget.memory_available_bytes = uint64_t{16} << 30;
  for (kernels::Isa isa : kernels::UsableIsas()) host.isas.emplace_back(kernels::Name(isa));
  return host;
}

inline EngineOptions Base() {
  EngineOptions options;
  options.model = "preset:tiny";
  return options;
}

// The needs of the engine's capacity check, with the smallest useful cache.
inline uint64_t LeastBytes(const EngineOptions& options) {
  const PlannedModel model = *PlanModel(options);
  const auto needs = NeedsFor(options, model);
  EXPECT_TRUE(needs);
  const size_t length = std::min<size_t>(*ResolveModelLength(model.spec, options), 2048);
  const auto block = static_cast<size_t>(options.block_size);
  uint64_t bytes = 0;
  for (const RankNeeds& rank : *needs)
    bytes += rank.weights + rank.workspace + rank.kv.StorageBytes((length + block - 1) / block);
  return bytes;
}

inline DecoderSpec Tiny() {
  auto config = PresetConfig("tiny");
  EXPECT_TRUE(config);
  auto spec = ReadSpec(*config);
  EXPECT_TRUE(spec);
  return *spec;
}

inline Definition Parse(const char* text) {
  Definition definition;
  const Status status = FromJson(*Json::Parse(text), definition);
  EXPECT_TRUE(status) << status.error().message;
  return definition;
}

inline std::vector<std::string> Labels(const std::vector<Point>& points) {
  std::vector<std::string> labels;
  for (const Point& point : points) labels.push_back(point.label);
  return labels;
}

inline std::vector<Json> ValuesOf(const Definition& definition, const char* key) {
  const Axis* axis = FindAxis(definition.axes, key);
  return axis ? axis->values : std::vector<Json>();
}

inline constexpr char kTwoSockets[] = "pack:2 numa:1 core:4 pu:2";

}  // namespace pinion::harness
