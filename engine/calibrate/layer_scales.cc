#include "engine/calibrate/layer_scales.h"

#include "engine/calibrate/norm_division.h"
#include "engine/calibrate/scale_search.h"
#include "engine/checkpoint/rounded_tensor.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

using kernels::Dtype;

// The mean of fewer magnitudes says little about a channel.
constexpr size_t kFewestTokens = 32;

// The matrix that reads the outputs of `in`, an MLP's first matrix.
LayerMatrix DownOf(LayerMatrix in) {
  return {in.of_expert() ? MatrixRole::kExpertDown : MatrixRole::kDown, in.expert};
}

bool IsMlpIn(LayerMatrix matrix) {
  return matrix.role == MatrixRole::kMlpIn || matrix.role == MatrixRole::kExpertIn;
}

class ScaleFinder {
 public:
  ScaleFinder(StartedModel& model, const TensorSource& source, const QuantScheme& scheme, int layer,
              const LayerStatistics& statistics)
      : spec_(model.files.spec),
        table_(kernels::TableFor(model.isa)),
        ranks_(model.teams->ranks()),
        source_(source),
        choice_{scheme.method == QuantMethod::kAwq ? ScaleRule::kAwq : ScaleRule::kSmoothQuant,
                RoundingOf(scheme)},
        layer_(layer),
        statistics_(statistics),
        matrices_(CalibratedMatrices(spec_, layer)) {}

  LayerScales Run() {
    const TensorNames& names = spec_.names;
    Matrices readers = Readers(MatrixRole::kQkv);
    if (spec_.parts_side_by_side) Append(Readers(MatrixRole::kMlpIn), readers);
    // LAuReL adds what the norm gives to the residual stream.
    if (spec_.laurel_rank == 0) ScaleBehindNorm(readers, names.attention_norm, spec_.norm_offset);
    ScaleBehindNorm(Readers(MatrixRole::kQueryUp), names.q_a_norm, 0);
    ScaleBehindNorm(Readers(MatrixRole::kLatentUp), names.kv_a_norm, 0);
    ScaleBehindMlpNorm();
    for (const LayerMatrix& matrix : matrices_)
      if (IsMlpIn(matrix)) ScaleOutput(DownOf(matrix));
    return std::move(scales_);
  }

 private:
  using Matrices = std::vector<LayerMatrix>;

  Matrices Readers(MatrixRole role) const {
    Matrices readers;
    for (const LayerMatrix& matrix : matrices_)
      if (matrix.role == role) readers.push_back(matrix);
    return readers;
  }

  static void Append(const Matrices& more, Matrices& to) {
    to.insert(to.end(), more.begin(), more.end());
  }

  // Calls see(statistics, weights) for each matrix.
  void Visit(const Matrices& matrices, const std::function<void(const ScaledMatrix&)>& see) const {
    for (const LayerMatrix& matrix : matrices) {
      const Stack stack = ReadStack(source_, ModulesOf(spec_, layer_, matrix));
      if (!matrix.of_expert()) {
        see({statistics_.inputs.at(matrix.role), stack.weights.data(), stack.rows});
        continue;
      }
      const InputStatistics inputs = statistics_.experts.StatisticsOf(
          matrix.role, static_cast<size_t>(matrix.expert), table_, ranks_, false);
      see({inputs, stack.weights.data(), stack.rows});
    }
  }

  std::vector<float> Search(const ScaleChoice& choice, const InputStatistics& all,
                            const Matrices& readers) const {
    return SearchScales(table_, ranks_, choice, all, [&](const auto& see) { Visit(readers, see); });
  }

  // Divides the outputs of a norm by the factors by which the columns of its readers are
  // multiplied. Returns the factors; empty if the model has no such norm or nothing reads it.
  std::vector<float> ScaleBehindNorm(const Matrices& readers, const std::string& norm, float offset,
                                     bool powers_of_two = false) {
    if (norm.empty() || readers.empty()) return {};
    ScaleChoice choice = choice_;
    choice.powers_of_two = powers_of_two;
    std::vector<float> factors =
        Search(choice, statistics_.inputs.at(readers.back().role), readers);
    const std::string name = LayerTensor(norm, layer_);
    Divide(name + ".weight", offset, factors);
    if (spec_.norm_bias) {
      std::vector<float> exact = factors;
      Divide(name + ".bias", 0, exact);
    }
    for (const LayerMatrix& reader : readers) scales_.columns[reader] = factors;
    return factors;
  }

  // Experts in a single tensor are not quantised: their columns could not make up for a scaled
  // norm.
  void ScaleBehindMlpNorm() {
    Matrices readers = Readers(MatrixRole::kMlpIn);
    const Matrices experts = Readers(MatrixRole::kExpertIn);
    const bool routes = spec_.layer_specs[static_cast<size_t>(layer_)].mlp == MlpKind::kExperts;
    if (routes && experts.empty()) return;
    Append(experts, readers);
    const std::vector<float> factors =
        ScaleBehindNorm(readers, spec_.names.mlp_norm, spec_.norm_offset, routes);
    if (routes && !factors.empty()) ScaleRouter(factors);
  }

  void ScaleRouter(const std::vector<float>& factors) {
    const std::string name = LayerTensor(spec_.names.router, layer_);
    Stack router = ReadStack(source_, {name});
    for (size_t row = 0; row < router.rows; ++row)
      for (size_t i = 0; i < router.k; ++i) router.row(row)[i] *= factors[i];
    const TensorInfo info = MustFind(source_, name + ".weight");
    const size_t count = router.rows * router.k;
    std::vector<std::byte>& stored = scales_.changed[info.name];
    stored.resize(count * kernels::SizeOf(info.dtype));
    kernels::Convert(stored.data(), info.dtype, router.weights.bytes(), Dtype::kF32, count);
  }

  // down((gate x) * (up x / s) * s): the factors of a gated MLP go into the rows of up, on which
  // its activation depends linearly. A bias would have to be divided too.
  void ScaleOutput(LayerMatrix down) {
    const bool biased = down.of_expert() ? spec_.moe.bias : spec_.mlp_bias;
    if (!spec_.gated || biased) return;
    Visit({down}, [&](const ScaledMatrix& matrix) {
      if (matrix.inputs.rows < kFewestTokens) return;
      scales_.columns[down] = SearchScales(table_, ranks_, choice_, matrix.inputs,
                                           [&](const auto& see) { see(matrix); });
    });
  }

  // Divides tensor + offset by the factors, which become the ratios that resulted.
  void Divide(const std::string& name, float offset, std::vector<float>& factors) {
    const TensorInfo info = MustFind(source_, name);
    std::vector<float> values(factors.size());
    ReadTensor(source_, info, values.data());
    scales_.changed[info.name] = DivideNorm(info.dtype, offset, values, factors);
  }

  const DecoderSpec& spec_;
  const kernels::Table& table_;
  Ranks& ranks_;
  const TensorSource& source_;
  const ScaleChoice choice_;
  const int layer_;
  const LayerStatistics& statistics_;
  const Matrices matrices_;
  LayerScales scales_;
};

}  // namespace

void LayerScales::Apply(LayerMatrix matrix, Stack& stack) const {
  if (const auto own = columns.find(matrix); own != columns.end())
    for (size_t row = 0; row < stack.rows; ++row)
      for (size_t i = 0; i < stack.k; ++i) stack.row(row)[i] *= own->second[i];
  if (!IsMlpIn(matrix)) return;
  const auto down = columns.find(DownOf(matrix));
  if (down == columns.end()) return;
  const size_t up = stack.rows / 2;  // rows of gate come first
  for (size_t row = 0; row < up; ++row)
    for (size_t i = 0; i < stack.k; ++i) stack.row(up + row)[i] /= down->second[row];
}

LayerScales FindScales(StartedModel& model, const TensorSource& source, const QuantScheme& scheme,
                       int layer, const LayerStatistics& statistics) {
  if (scheme.method == QuantMethod::kGptq) return {};
  return ScaleFinder(model, source, scheme, layer, statistics).Run();
}

}  // namespace pinion
