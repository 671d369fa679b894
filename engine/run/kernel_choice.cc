#include "engine/run/kernel_choice.h"

#include "engine/base/strings.h"
#include "engine/weights/formats.h"
#include "engine/weights/shard.h"
#include "engine/weights/weight_layout.h"
#include "kernels/gemm_plan.h"

namespace pinion {

Result<std::string> ChooseGemmKernels(const std::string& asked, kernels::Isa isa,
                                      kernels::Dtype dtype) {
  const auto rules = asked == "auto" ? kernels::MeasureGemmRules(isa, dtype)
                                     : kernels::ParseGemmRules(asked, isa, dtype);
  if (!rules) {
    std::vector<std::string> names;
    for (const kernels::GemmKernel& kernel : kernels::GemmCandidates(isa, dtype))
      names.push_back(kernels::Name(kernel));
    return Fail(ErrorCode::kUsage,
                StrCat("--gemm-kernel '", asked, "' is not valid for ", kernels::Name(dtype),
                       " on ", kernels::Name(isa), "; use auto, or NAME[@ROWS] joined by ',' from ",
                       "1 row upwards; NAME is one of ", Join(names, ", ")));
  }
  kernels::UseGemmRules(isa, dtype, *rules);
  return kernels::Format(*rules);
}

std::vector<kernels::IntLayout> MeasuredLayouts(const DecoderSpec& spec, const FormatPlan& formats,
                                                const RankShares& shares, int rank) {
  const Shard shard = MakeShard(spec, shares, rank);
  std::vector<kernels::IntLayout> layouts;
  for (const auto& [key, format] : formats.formats()) {
    const Range inputs = InputsOf(spec, shard, key.first, key.second);
    const PackedMatrix matrix = MatrixOf(formats.dtype, kernels::kBlockN, inputs, &format);
    if (matrix.rounds() || matrix.is_e4m3()) layouts.push_back(*matrix.integers);
  }
  return layouts;
}

}  // namespace pinion
