#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/spec/spec.h"
#include "engine/weights/format_plan.h"
#include "engine/weights/shard.h"
#include "kernels/integer_prefetch.h"
#include "kernels/kernels.h"

namespace pinion {

// Chooses the GEMM kernel for each number of rows, for all of this process: by measuring now if
// `asked` is auto, else those given, as of --gemm-kernel. Returns them in that form.
Result<std::string> ChooseGemmKernels(const std::string& asked, kernels::Isa isa,
                                      kernels::Dtype dtype);

// Layouts of those matrices of a rank whose products' prefetching is measured: those that are
// multiplied as they lie, with rounded activations or as eight-bit floats.
std::vector<kernels::IntLayout> MeasuredLayouts(const DecoderSpec& spec, const FormatPlan& formats,
                                                const RankShares& shares, int rank);

}  // namespace pinion
