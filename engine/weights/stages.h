#pragma once

#include <vector>

#include "engine/spec/spec.h"
#include "engine/weights/format_plan.h"
#include "engine/weights/shard.h"

namespace pinion {

// How a model is distributed over ranks: in stages of consecutive layers, each of which is sharded
// over `tensor` ranks. Ranks are numbered from the last stage to the first, so that rank 0, whose
// process samples, has the head.
struct Partition {
  int tensor = 1, stages = 1;

  int ranks() const { return tensor * stages; }
  int StageOfRank(int rank) const { return stages - 1 - rank / tensor; }
};

// The layers of each of `stages` stages, first to last: so that the largest has as few bytes of
// weights, packed as `formats` say, as possible. They begin at layers of StageBegins, which are as
// many at least.
std::vector<Range> StageLayers(const DecoderSpec& spec, const FormatPlan& formats, int stages);

// The specs of the stages, first to last; of one stage, `spec` itself.
std::vector<DecoderSpec> StageSpecs(const DecoderSpec& spec, const FormatPlan& formats, int stages);

}  // namespace pinion
