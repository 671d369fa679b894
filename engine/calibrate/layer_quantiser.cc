#include "engine/calibrate/layer_quantiser.h"

#include <algorithm>
#include <memory>

#include "engine/base/check.h"
#include "engine/base/strings.h"
#include "engine/calibrate/gptq.h"
#include "engine/calibrate/scale_search.h"
#include "engine/model/formats.h"
#include "engine/model/rounded_tensor.h"
#include "engine/model/tensor_list.h"

namespace pinion {
namespace {

using kernels::Dtype;

constexpr double kDamping = 0.01;  // GPTQ, section 3.3: of the diagonal's mean

struct Stack {
  size_t rows = 0, k = 0;
  AlignedFloats weights;  // [rows][k]
  float* row(size_t index) { return weights.data() + index * k; }
};

class LayerQuantiser {
 public:
  LayerQuantiser(StartedModel& model, const TensorSource& source, const QuantScheme& scheme,
                 int layer, LayerStatistics statistics)
      : model_(model),
        spec_(model.files.spec),
        table_(kernels::TableFor(model.isa)),
        source_(source),
        scheme_(scheme),
        rounding_(RoundingOf(scheme)),
        layer_(layer),
        statistics_(std::move(statistics)) {}

  QuantisedLayer Run() {
    const std::vector<MatrixRole> roles = CalibratedRoles(spec_, layer_);
    for (const MatrixRole role : roles) stacks_[role] = ReadStack(role);
    if (scheme_.method != QuantMethod::kGptq) {
      ScaleBehindNorm(MatrixRole::kQkv, spec_.names.attention_norm);
      ScaleBehindNorm(MatrixRole::kMlpIn, spec_.names.mlp_norm);
      ScaleMlpOutput();
    }
    for (const MatrixRole role : roles) Round(role);
    return std::move(result_);
  }

 private:
  TensorInfo Find(const std::string& name) const {
    auto info = source_.Find(name);
    CHECK(info) << info.error().message;  // OpenWeights has checked it
    return *std::move(info);
  }

  void Read(const TensorInfo& info, float* dst) const {
    std::vector<std::byte> scratch;
    const auto rows = static_cast<size_t>(info.shape[0]);
    const std::byte* src = source_.Rows(info, 0, rows, scratch);
    kernels::Convert(reinterpret_cast<std::byte*>(dst), Dtype::kF32, src, info.dtype,
                     rows * RowElements(info.shape));
    source_.Release(info, 0, rows);
  }

  Stack ReadStack(MatrixRole role) const {
    std::vector<TensorInfo> tensors;
    Stack stack;
    for (const std::string& module : ModulesOf(spec_, layer_, role)) {
      tensors.push_back(Find(module + ".weight"));
      stack.rows += static_cast<size_t>(tensors.back().shape[0]);
      stack.k = static_cast<size_t>(tensors.back().shape[1]);
    }
    stack.weights.Resize(stack.rows * stack.k);
    size_t row = 0;
    for (const TensorInfo& info : tensors) {
      Read(info, stack.row(row));
      row += static_cast<size_t>(info.shape[0]);
    }
    return stack;
  }

  std::vector<float> Search(MatrixRole role, const Stack& stack) {
    const ScaleRule rule =
        scheme_.method == QuantMethod::kAwq ? ScaleRule::kAwq : ScaleRule::kSmoothQuant;
    return SearchScales(table_, *model_.ranks,
                        {statistics_.at(role), stack.weights.data(), stack.rows, rounding_}, rule);
  }

  static void ScaleColumns(Stack& stack, const std::vector<float>& factors) {
    for (size_t row = 0; row < stack.rows; ++row)
      for (size_t i = 0; i < stack.k; ++i) stack.row(row)[i] *= factors[i];
  }

  // Divides what the norm gives by the factors and multiplies the columns that read it.
  void ScaleBehindNorm(MatrixRole role, const std::string& norm) {
    const auto stack = stacks_.find(role);
    if (norm.empty() || stack == stacks_.end()) return;
    std::vector<float> factors = Search(role, stack->second);
    const std::string name = LayerTensor(norm, layer_);
    Divide(name + ".weight", spec_.norm_offset, factors);
    if (spec_.norm_bias) {
      std::vector<float> exact = factors;
      Divide(name + ".bias", 0, exact);
    }
    ScaleColumns(stack->second, factors);
  }

  // tensor + offset, divided by the factors, which become what they are once the quotient has been
  // rounded to the tensor's dtype: multiplied with them, the weights make up for that exactly.
  void Divide(const std::string& name, float offset, std::vector<float>& factors) {
    const TensorInfo info = Find(name);
    std::vector<float> values(factors.size()), rounded(factors.size());
    Read(info, values.data());
    for (size_t i = 0; i < values.size(); ++i)
      rounded[i] = (values[i] + offset) / factors[i] - offset;
    std::vector<std::byte>& bytes = result_.changed[name];
    bytes.resize(values.size() * kernels::SizeOf(info.dtype));
    auto* floats = reinterpret_cast<std::byte*>(rounded.data());
    kernels::Convert(bytes.data(), info.dtype, floats, Dtype::kF32, values.size());
    kernels::Convert(floats, Dtype::kF32, bytes.data(), info.dtype, values.size());
    for (size_t i = 0; i < values.size(); ++i)
      factors[i] = rounded[i] + offset == 0 ? 1 : (values[i] + offset) / (rounded[i] + offset);
  }

  // down((gate x) * (up x / s) * s): the factors go into the rows of up, which a gated MLP
  // multiplies without more ado. A bias would have to be divided too.
  void ScaleMlpOutput() {
    const auto down = stacks_.find(MatrixRole::kDown), in = stacks_.find(MatrixRole::kMlpIn);
    if (down == stacks_.end() || !spec_.gated || spec_.mlp_bias) return;
    const std::vector<float> factors = Search(MatrixRole::kDown, down->second);
    ScaleColumns(down->second, factors);
    const size_t up = in->second.rows / 2;  // rows of gate come first
    for (size_t i = 0; i < factors.size(); ++i)
      table_.scale(in->second.row(up + i), 1 / factors[i], in->second.k);
  }

  void Round(MatrixRole role) {
    Stack& stack = stacks_.at(role);
    RoundedMatrix& matrix = result_.matrices[role];
    const size_t group = rounding_.group_of(stack.k);
    matrix.k = stack.k;
    matrix.groups = (stack.k + group - 1) / group;
    matrix.codes.resize(stack.rows * stack.k);
    matrix.scales.resize(stack.rows * matrix.groups);
    matrix.offsets.resize(stack.rows * matrix.groups);
    const RoundingJob job{
        stack.weights.data(), stack.rows,           stack.k, rounding_, matrix.codes.data(),
        matrix.scales.data(), matrix.offsets.data()};
    scheme_.method == QuantMethod::kGptq ? RoundByGptq(role, job) : RoundToNearest(job);
    stack = {};
  }

  void RoundByGptq(MatrixRole role, const RoundingJob& job) {
    GramFactor factor(std::move(statistics_.at(role).gram), job.k, kDamping);
    Gptq gptq(factor, job);
    model_.ranks->Run([&](const Worker& worker) {
      factor.Factor(table_, worker);
      worker.TeamBarrier();
      gptq.Round(table_, worker);
    });
  }

  void RoundToNearest(const RoundingJob& job) {
    const size_t group = rounding_.group_of(job.k), groups = (job.k + group - 1) / group;
    model_.ranks->Run([&](const Worker& worker) {
      const auto [first, last] = worker.Slice(job.n);
      for (size_t row = first; row < last; ++row)
        RoundRow(rounding_, job.weights + row * job.k, job.k, job.codes + row * job.k,
                 job.scales + row * groups, job.offsets + row * groups);
    });
  }

  StartedModel& model_;
  const DecoderSpec& spec_;
  const kernels::Table& table_;
  const TensorSource& source_;
  const QuantScheme& scheme_;
  const RoundingScheme rounding_;
  const int layer_;
  LayerStatistics statistics_;
  std::map<MatrixRole, Stack> stacks_;
  QuantisedLayer result_;
};

}  // namespace

std::vector<MatrixRole> CalibratedRoles(const DecoderSpec& spec, int layer) {
  std::vector<MatrixRole> roles;
  if (spec.latent.kv_rank == 0) roles = {MatrixRole::kQkv, MatrixRole::kO};
  if (spec.layer_specs[static_cast<size_t>(layer)].mlp == MlpKind::kDense) {
    roles.push_back(MatrixRole::kMlpIn);
    roles.push_back(MatrixRole::kDown);
  }
  return roles;
}

QuantisedLayer QuantiseLayer(StartedModel& model, const TensorSource& source,
                             const QuantScheme& scheme, int layer, LayerStatistics statistics) {
  return LayerQuantiser(model, source, scheme, layer, std::move(statistics)).Run();
}

}  // namespace pinion
