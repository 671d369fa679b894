#include "engine/weights/stream_packer.h"

#include <algorithm>
#include <utility>

#include "engine/spec/stage.h"
#include "engine/spec/tensor_list.h"
#include "engine/weights/weight_packer.h"

namespace pinion {
namespace {

// Packs and fills tensors that are whole on every rank.
class WholeLoader {
 public:
  WholeLoader(const DecoderSpec& spec, const TensorSource& source, const Worker& worker)
      : hidden_{0, static_cast<size_t>(spec.hidden)},
        source_(source),
        worker_(worker),
        packer_(source, worker) {}

  // Its outputs are the tensor's rows from `row` on.
  void Matrix(const PackedMatrix& matrix, const std::string& module, size_t row = 0) {
    const TensorInfo tensor = packer_.Find(module + ".weight");
    packer_.PackMatrix(matrix, {{&tensor, row, matrix.outputs}}, 0);
  }
  void Norm(const NormWeights& norm, const std::string& module) {
    packer_.FillVector(norm.weight, module + ".weight", hidden_);
  }
  void Vector(float* dst, const std::string& name, size_t n, float factor = 1) {
    packer_.FillVector(dst, name, {0, n});
    for (size_t i = 0; dst && worker_.thread == 0 && i < n; ++i) dst[i] *= factor;
  }
  // dst [rows][columns] = the module's weight.
  void Rows(float* dst, const std::string& module) {
    if (worker_.thread != 0) return;
    const TensorInfo tensor = packer_.Find(module + ".weight");
    const auto rows = static_cast<size_t>(tensor.shape[0]);
    const size_t count = rows * static_cast<size_t>(tensor.shape[1]);
    std::vector<std::byte> scratch;
    kernels::Convert(reinterpret_cast<std::byte*>(dst), kernels::Dtype::kF32,
                     source_.Rows(tensor, 0, rows, scratch), tensor.dtype, count);
  }

 private:
  Range hidden_;
  const TensorSource& source_;
  const Worker& worker_;
  WeightPacker packer_;
};

void LoadAltUp(const DecoderSpec& spec, int index, WholeLoader& loader, AltUpWeights& altup) {
  const TensorNames& names = spec.names;
  const auto at = [&](const std::string& pattern) { return LayerTensor(pattern, index); };
  const auto hidden = static_cast<size_t>(spec.hidden);
  loader.Matrix(altup.router, at(names.altup_router));
  loader.Vector(altup.router_norm, at(names.altup_router_norm) + ".weight", hidden,
                1 / static_cast<float>(hidden));
  loader.Rows(altup.predict, at(names.altup_predict));
  loader.Rows(altup.correct, at(names.altup_correct));
  loader.Vector(altup.scale, at(names.altup_scale), hidden);
}

}  // namespace

void LoadStreams(const DecoderSpec& spec, int index, const TensorSource& source,
                 const Worker& worker, LayerWeights& layer) {
  if (!IsInStage(spec, static_cast<size_t>(index))) return;
  const TensorNames& names = spec.names;
  const auto at = [&](const std::string& pattern) { return LayerTensor(pattern, index); };
  WholeLoader loader(spec, source, worker);
  if (spec.layer_inputs.size > 0) {
    loader.Matrix(layer.input.gate, at(names.layer_input_gate));
    loader.Matrix(layer.input.out, at(names.layer_input_out));
    loader.Norm(layer.input.post_norm, at(names.layer_input_post_norm));
  }
  if (spec.laurel_rank > 0) {
    loader.Matrix(layer.laurel.left, at(names.laurel_left));
    loader.Matrix(layer.laurel.right, at(names.laurel_right));
    loader.Norm(layer.laurel.norm, at(names.laurel_norm));
  }
  if (spec.alt_up.streams > 0) LoadAltUp(spec, index, loader, layer.alt_up);
}

void LoadStreams(const DecoderSpec& spec, const TensorSource& source, const Worker& worker,
                 RankWeights& weights) {
  const TensorNames& names = spec.names;
  WholeLoader loader(spec, source, worker);
  if (const int size = spec.layer_inputs.size; size > 0) {
    loader.Matrix(weights.layer_inputs, names.layer_input_projection,
                  FirstLayer(spec) * static_cast<size_t>(size));
    loader.Vector(weights.layer_input_norm, names.layer_input_norm + ".weight",
                  static_cast<size_t>(size));
  }
  for (const auto& [matrices, name] : {std::pair(&weights.streams_in, &names.altup_in),
                                       std::pair(&weights.streams_out, &names.altup_out)})
    for (size_t stream = 0; stream < matrices->size(); ++stream)
      loader.Matrix((*matrices)[stream], LayerTensor(*name, static_cast<int>(stream)));
}

}  // namespace pinion
