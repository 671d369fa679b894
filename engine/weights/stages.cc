#include "engine/weights/stages.h"

#include <algorithm>
#include <numeric>

#include "engine/base/check.h"
#include "engine/spec/stage.h"
#include "engine/weights/weights.h"

namespace pinion {
namespace {

uint64_t BytesOf(const DecoderSpec& stage, const FormatPlan& formats) {
  return ShardWeightBytes(stage, formats, /*moe_prepack=*/true, 1, 0);
}

// Runs of layers that stay together.
std::vector<Range> Units(const DecoderSpec& spec) {
  std::vector<Range> units;
  for (const int begin : StageBegins(spec)) {
    if (!units.empty()) units.back().end = static_cast<size_t>(begin);
    units.push_back({static_cast<size_t>(begin), spec.layer_specs.size()});
  }
  return units;
}

// Of every unit, with the parts before the first and after the last.
std::vector<uint64_t> UnitBytes(const DecoderSpec& spec, const std::vector<Range>& units,
                                const FormatPlan& formats) {
  std::vector<uint64_t> bytes;
  for (const Range& unit : units)
    bytes.push_back(
        BytesOf(StageOf(spec, static_cast<int>(unit.begin), static_cast<int>(unit.end)), formats));
  return bytes;
}

// The stages, in units, that result if each takes some while it has at most `limit` bytes and
// leaves enough for the others; empty if they do not suffice.
std::vector<Range> Filled(const std::vector<uint64_t>& bytes, size_t stages, uint64_t limit) {
  std::vector<Range> found;
  size_t next = 0;
  for (size_t stage = 0; stage < stages; ++stage) {
    const size_t first = next, most = bytes.size() - (stages - 1 - stage);
    uint64_t taken = 0;
    while (next < most && (next == first || taken + bytes[next] <= limit)) taken += bytes[next++];
    if (taken > limit) return {};
    found.push_back({first, next});
  }
  if (next < bytes.size()) return {};
  return found;
}

}  // namespace

std::vector<Range> StageLayers(const DecoderSpec& spec, const FormatPlan& formats, int stages) {
  const std::vector<Range> units = Units(spec);
  const auto count = static_cast<size_t>(stages);
  CHECK(stages >= 1 && count <= units.size()) << stages << " stages of " << units.size();
  const std::vector<uint64_t> bytes = UnitBytes(spec, units, formats);
  uint64_t low = *std::max_element(bytes.begin(), bytes.end());
  uint64_t high = std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (Filled(bytes, count, middle).empty())
      low = middle + 1;
    else
      high = middle;
  }
  std::vector<Range> layers;
  for (const Range& taken : Filled(bytes, count, high))
    layers.push_back({units[taken.begin].begin, units[taken.end - 1].end});
  return layers;
}

std::vector<DecoderSpec> StageSpecs(const DecoderSpec& spec, const FormatPlan& formats,
                                    int stages) {
  if (stages == 1) return {spec};
  std::vector<DecoderSpec> specs;
  for (const Range& layers : StageLayers(spec, formats, stages))
    specs.push_back(StageOf(spec, static_cast<int>(layers.begin), static_cast<int>(layers.end)));
  return specs;
}

}  // namespace pinion
