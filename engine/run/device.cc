#include "engine/run/device.h"

#include "engine/base/strings.h"
#include "engine/run/cpu_device.h"

namespace pinion {
namespace {

constexpr DeviceRow kDevices[] = {
    {"cpu", MakeCpuDevice},
};

}  // namespace

std::vector<RankNeeds> NeedsHere(const StartedModel& model, const DecoderOptions& options) {
  const Partition partition = model.options.partition();
  if (!model.world) return CountNeeds(model.files.spec, options, partition);
  // That they can share the ranks is known since they met.
  const StagePlaces places = StagePlaces::Of(partition, model.processes()).value();
  const auto needs = CountNeeds(model.files.spec, options, partition, places);
  const auto ranks = static_cast<ptrdiff_t>(places.ranks());
  const auto first = needs.begin() + static_cast<ptrdiff_t>(model.world->process()) * ranks;
  return {first, first + ranks};
}

std::span<const DeviceRow> Devices() { return kDevices; }

Result<std::unique_ptr<Device>> MakeDevice(const std::string& name,
                                           std::span<const DeviceRow> devices) {
  if (name == "auto") return devices.front().make();
  std::vector<std::string> known = {"auto"};
  for (const DeviceRow& row : devices) {
    if (name == row.name) return row.make();
    known.emplace_back(row.name);
  }
  return Fail(ErrorCode::kUsage,
              StrCat("--device '", name, "' is unknown; use one of ", Join(known, ", ")));
}

}  // namespace pinion
