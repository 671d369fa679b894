#include "engine/calibrate/calibrated_source.h"

#include <algorithm>
#include <utility>

#include "engine/checkpoint/rounded_tensor.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

// Some rows of a matrix of a layer, which is quantised when it is first read.
class CalibratedTensor : public QuantisedTensor {
 public:
  CalibratedTensor(const CalibratedSource& source, const RoundingScheme& scheme, int layer,
                   LayerMatrix matrix, size_t first, const TensorInfo& info)
      : source_(source), layer_(layer), matrix_(matrix), first_(first) {
    rows_ = static_cast<size_t>(info.shape.at(0));
    columns_ = static_cast<size_t>(info.shape.at(1));
    group_ = scheme.group_of(columns_);
    range_ = scheme.range();
    format_ = "calibrated";
    stored_bytes_ = rows_ * columns_ * static_cast<uint64_t>(scheme.bits) / 8;
  }

  void Read(size_t row, size_t count, int8_t* codes, float* scales, float* offsets) const override {
    const RoundedMatrix& matrix = source_.Layer(layer_).matrices.at(matrix_);
    const size_t at = first_ + row;
    std::copy_n(matrix.codes.data() + at * matrix.k, count * matrix.k, codes);
    std::copy_n(matrix.scales.data() + at * matrix.groups, count * matrix.groups, scales);
    std::copy_n(matrix.offsets.data() + at * matrix.groups, count * matrix.groups, offsets);
  }

 private:
  const CalibratedSource& source_;
  const int layer_;
  const LayerMatrix matrix_;
  const size_t first_;  // row of the matrix
};

}  // namespace

CalibratedSource::CalibratedSource(std::unique_ptr<TensorSource> plain, StartedModel& model,
                                   const QuantScheme& scheme, Calibration& calibration)
    : plain_(std::move(plain)), model_(model), scheme_(scheme), calibration_(calibration) {
  const DecoderSpec& spec = model.files.spec;
  const RoundingScheme rounding = RoundingOf(scheme);
  for (const TensorSpec& tensor : TensorList(spec))
    if (tensor.layer >= 0) layer_of_[tensor.name] = tensor.layer;
  for (int layer = 0; layer < spec.layers; ++layer)
    for (const LayerMatrix& matrix : CalibratedMatrices(spec, layer)) {
      size_t first = 0;
      for (const std::string& module : ModulesOf(spec, layer, matrix)) {
        const TensorInfo info = MustFind(*plain_, module + ".weight");
        linears_[info.name] =
            std::make_unique<CalibratedTensor>(*this, rounding, layer, matrix, first, info);
        first += static_cast<size_t>(info.shape[0]);
      }
    }
}

const QuantisedLayer& CalibratedSource::Layer(int layer) const {
  if (layer == current_) return layer_;
  layer_ = {};  // before the next one is made
  layer_ = QuantiseLayer(model_, *plain_, scheme_, layer, calibration_.Take(layer));
  current_ = layer;
  return layer_;
}

const std::byte* CalibratedSource::Rows(const TensorInfo& info, size_t row, size_t count,
                                        std::vector<std::byte>& scratch) const {
  if (const auto in = layer_of_.find(info.name); in != layer_of_.end()) {
    const auto& changed = Layer(in->second).changed;
    if (const auto found = changed.find(info.name); found != changed.end())
      return found->second.data() + row * RowElements(info.shape) * kernels::SizeOf(info.dtype);
  }
  return plain_->Rows(info, row, count, scratch);
}

const QuantisedTensor* CalibratedSource::Quantised(const std::string& name) const {
  const auto found = linears_.find(name);
  return found == linears_.end() ? nullptr : found->second.get();
}

}  // namespace pinion
