#include "engine/calibrate/layer_matrices.h"

#include <utility>

#include "engine/base/check.h"
#include "engine/spec/tensor_list.h"
#include "engine/weights/formats.h"
#include "kernels/kernels.h"

namespace pinion {

std::vector<LayerMatrix> CalibratedMatrices(const DecoderSpec& spec, int layer) {
  std::vector<LayerMatrix> matrices;
  const auto add = [&](LayerMatrix matrix) {
    if (!ModulesOf(spec, layer, matrix).empty()) matrices.push_back(matrix);
  };
  for (const MatrixRole role : {MatrixRole::kQkv, MatrixRole::kQueryUp, MatrixRole::kLatentUp,
                                MatrixRole::kO, MatrixRole::kMlpIn, MatrixRole::kDown})
    add({role});
  for (int expert = 0; expert < spec.moe.router.experts; ++expert) {
    add({MatrixRole::kExpertIn, expert});
    add({MatrixRole::kExpertDown, expert});
  }
  return matrices;
}

std::vector<std::string> ModulesOf(const DecoderSpec& spec, int layer, LayerMatrix matrix) {
  std::vector<std::string> modules = ModulesOf(spec, layer, matrix.role);
  if (!matrix.of_expert() || modules.empty()) return modules;
  const auto each = static_cast<ptrdiff_t>(modules.size()) / spec.moe.router.experts;
  const auto first = modules.begin() + matrix.expert * each;
  return {first, first + each};
}

TensorInfo MustFind(const TensorSource& source, const std::string& name) {
  auto info = source.Find(name);
  CHECK(info) << info.error().message;
  return *std::move(info);
}

void ReadTensor(const TensorSource& source, const TensorInfo& info, float* dst) {
  std::vector<std::byte> scratch;
  const auto rows = static_cast<size_t>(info.shape[0]);
  const std::byte* src = source.Rows(info, 0, rows, scratch);
  kernels::Convert(reinterpret_cast<std::byte*>(dst), kernels::Dtype::kF32, src, info.dtype,
                   rows * RowElements(info.shape));
  source.Release(info, 0, rows);
}

Stack ReadStack(const TensorSource& source, const std::vector<std::string>& modules) {
  std::vector<TensorInfo> tensors;
  Stack stack;
  for (const std::string& module : modules) {
    tensors.push_back(MustFind(source, module + ".weight"));
    stack.rows += static_cast<size_t>(tensors.back().shape[0]);
    stack.k = static_cast<size_t>(tensors.back().shape[1]);
  }
  stack.weights.Resize(stack.rows * stack.k);
  size_t row = 0;
  for (const TensorInfo& info : tensors) {
    ReadTensor(source, info, stack.row(row));
    row += static_cast<size_t>(info.shape[0]);
  }
  return stack;
}

}  // namespace pinion
