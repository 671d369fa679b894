#include "engine/decoder/classifier.h"

#include <cmath>
#include <numeric>

#include "engine/base/check.h"
#include "kernels/kernels.h"

namespace pinion {
namespace {

// All elements of a tensor of one or two dimensions.
Result<std::vector<float>> ReadAll(const TensorSource& source, const std::string& name) {
  PINION_ASSIGN(const TensorInfo info, source.Find(name));
  const auto rows = static_cast<size_t>(info.shape[0]);
  const size_t columns = info.shape.size() == 2 ? static_cast<size_t>(info.shape[1]) : 1;
  std::vector<std::byte> scratch;
  std::vector<float> values(rows * columns);
  kernels::Convert(reinterpret_cast<std::byte*>(values.data()), kernels::Dtype::kF32,
                   source.Rows(info, 0, rows, scratch), info.dtype, values.size());
  return values;
}

float Activate(ClassifierSpec::Activation activation, float x) {
  if (activation == ClassifierSpec::Activation::kTanh) return std::tanh(x);
  return 0.5f * x * (1 + std::erf(x * static_cast<float>(M_SQRT1_2)));
}

}  // namespace

Result<Classifier::Linear> Classifier::LoadLinear(const TensorSource& source,
                                                  const std::string& name, bool bias) {
  Linear linear;
  PINION_ASSIGN(const TensorInfo info, source.Find(name + ".weight"));
  linear.outputs = static_cast<size_t>(info.shape[0]);
  PINION_ASSIGN(linear.weight, ReadAll(source, name + ".weight"));
  if (bias) {
    PINION_ASSIGN(linear.bias, ReadAll(source, name + ".bias"));
  }
  return linear;
}

Result<Classifier> Classifier::Load(const DecoderSpec& spec, const TensorSource& source) {
  CHECK(spec.classifier.labels > 0);
  Classifier classifier;
  classifier.spec_ = spec.classifier;
  classifier.hidden_ = static_cast<size_t>(spec.hidden);
  classifier.norm_eps_ = spec.norm_eps;
  const TensorNames& names = spec.names;
  PINION_ASSIGN(classifier.dense_,
                LoadLinear(source, names.classifier_dense, spec.classifier.dense_bias));
  PINION_ASSIGN(classifier.out_, LoadLinear(source, names.classifier_out, true));
  if (names.classifier_norm.empty()) return classifier;
  PINION_ASSIGN(classifier.norm_weight_, ReadAll(source, names.classifier_norm + ".weight"));
  if (spec.norm_bias) {
    PINION_ASSIGN(classifier.norm_bias_, ReadAll(source, names.classifier_norm + ".bias"));
  }
  return classifier;
}

std::vector<float> Classifier::Linear::Times(const std::vector<float>& x) const {
  std::vector<float> y(outputs);
  for (size_t row = 0; row < outputs; ++row)
    y[row] = std::inner_product(x.begin(), x.end(), weight.data() + row * x.size(),
                                bias.empty() ? 0.0f : bias[row]);
  return y;
}

std::vector<float> Classifier::Scores(const float* x) const {
  std::vector<float> hidden = dense_.Times(std::vector<float>(x, x + hidden_));
  for (float& value : hidden) value = Activate(spec_.activation, value);
  if (!norm_weight_.empty())
    kernels::TableFor(kernels::Isa::kScalar)
        .layer_norm(hidden.data(), kernels::Dtype::kF32, hidden.data(), norm_weight_.data(),
                    norm_bias_.empty() ? nullptr : norm_bias_.data(), hidden_, norm_eps_);
  return out_.Times(hidden);
}

}  // namespace pinion
