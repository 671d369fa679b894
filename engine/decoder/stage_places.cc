#include "engine/decoder/stage_places.h"

#include <string>

#include "engine/base/strings.h"

namespace pinion {
namespace {

size_t RoundUp(size_t value, size_t step) { return (value + step - 1) / step * step; }

// The nearest larger numbers of ranks that so many processes can share.
std::string WaysOut(size_t tensor, size_t stages, size_t processes) {
  if (stages == 1) return StrCat("-tp ", processes, " or a multiple of it");
  const std::string more_stages = StrCat("-tp ", tensor, " -pp ", RoundUp(stages, processes));
  if (processes % stages == 0)
    return StrCat("-tp ", RoundUp(tensor, processes / stages), " -pp ", stages, " or ",
                  more_stages);
  return StrCat(more_stages, " or -tp ", RoundUp(tensor, processes), " -pp 1");
}

}  // namespace

Result<StagePlaces> StagePlaces::Of(const Partition& partition, size_t processes) {
  const auto stages = static_cast<size_t>(partition.stages);
  const auto tensor = static_cast<size_t>(partition.tensor);
  StagePlaces places;
  places.partition_ = partition;
  places.processes_ = processes;
  const bool whole_stages = stages % processes == 0;
  const bool parts_of_stages = processes % stages == 0 && tensor % (processes / stages) == 0;
  if (!whole_stages && !parts_of_stages)
    return Fail(ErrorCode::kUsage,
                StrCat("-tp ", tensor, stages > 1 ? StrCat(" -pp ", stages) : "",
                       " cannot be divided by the ", processes,
                       " processes that were started together; use ",
                       WaysOut(tensor, stages, processes), ", or start one process alone"));
  places.per_stage_ = whole_stages ? 1 : processes / stages;
  places.stages_ = whole_stages ? static_cast<int>(stages / processes) : 1;
  places.tensor_ = static_cast<int>(tensor / places.per_stage_);
  places.ranks_ = static_cast<size_t>(places.stages_) * static_cast<size_t>(places.tensor_);
  return places;
}

std::vector<int> StagePlaces::StagesIn(size_t process) const {
  const int last = partition_.stages - 1 - static_cast<int>(process / per_stage_) * stages_;
  std::vector<int> stages;
  for (int i = 0; i < stages_; ++i) stages.push_back(last - i);
  return stages;
}

StagePlaces::Buffers StagePlaces::BuffersOf(size_t process, size_t index) const {
  const int number = StagesIn(process).at(index);
  const auto steps_in_flight = static_cast<size_t>(partition_.stages);
  Buffers buffers;
  if (number > 0 && index + 1 == static_cast<size_t>(stages_)) buffers.taken = 1;
  if (number + 1 < partition_.stages) buffers.given = index == 0 ? 1 : steps_in_flight;
  return buffers;
}

size_t StagePlaces::ProcessOf(int other, size_t process) const {
  const auto behind = static_cast<size_t>((partition_.stages - 1 - other) / stages_);
  return behind * per_stage_ + process % per_stage_;
}

}  // namespace pinion
