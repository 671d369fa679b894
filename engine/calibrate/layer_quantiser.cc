#include "engine/calibrate/layer_quantiser.h"

#include <utility>

#include "engine/calibrate/gptq.h"
#include "engine/calibrate/layer_scales.h"
#include "engine/calibrate/shrinkage.h"
#include "engine/checkpoint/rounded_tensor.h"

namespace pinion {
namespace {

constexpr double kDamping = 0.01;  // GPTQ, section 3.3: of the diagonal's mean

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
    LayerScales scales = FindScales(model_, source_, scheme_, layer_, statistics_);
    if (wants_gram()) ShrinkToDiagonal(statistics_.inputs.at(MatrixRole::kExpertIn));
    QuantisedLayer layer;
    for (const LayerMatrix& matrix : CalibratedMatrices(spec_, layer_)) {
      Stack stack = ReadStack(source_, ModulesOf(spec_, layer_, matrix));
      scales.Apply(matrix, stack);
      layer.matrices[matrix] = Round(matrix, stack);
    }
    layer.changed = std::move(scales.changed);
    return layer;
  }

 private:
  RoundedMatrix Round(LayerMatrix matrix, const Stack& stack) {
    RoundedMatrix rounded;
    const size_t group = rounding_.group_of(stack.k);
    rounded.k = stack.k;
    rounded.groups = (stack.k + group - 1) / group;
    rounded.codes.resize(stack.rows * stack.k);
    rounded.scales.resize(stack.rows * rounded.groups);
    rounded.offsets.resize(stack.rows * rounded.groups);
    const RoundingJob job{stack.weights.data(),
                          stack.rows,
                          stack.k,
                          rounding_,
                          rounded.codes.data(),
                          rounded.scales.data(),
                          rounded.offsets.data()};
    AlignedFloats gram = TakeGram(matrix);
    gram.empty() ? RoundToNearest(job) : RoundByGptq(std::move(gram), job);
    return rounded;
  }

  // Empty if the scheme does not use it or no token was seen.
  AlignedFloats TakeGram(LayerMatrix matrix) {
    if (!wants_gram()) return {};
    if (!matrix.of_expert()) {
      InputStatistics& inputs = statistics_.inputs.at(matrix.role);
      ShrinkToDiagonal(inputs);
      return std::move(inputs.gram);
    }
    InputStatistics inputs = statistics_.experts.StatisticsOf(
        matrix.role, static_cast<size_t>(matrix.expert), table_, model_.teams->ranks(), true);
    if (matrix.role == MatrixRole::kExpertIn)
      ShrinkToAll(statistics_.inputs.at(MatrixRole::kExpertIn), inputs);
    else
      ShrinkToDiagonal(inputs);
    return std::move(inputs.gram);
  }

  bool wants_gram() const { return scheme_.method == QuantMethod::kGptq; }

  void RoundByGptq(AlignedFloats gram, const RoundingJob& job) {
    GramFactor factor(std::move(gram), job.k, kDamping);
    Gptq gptq(factor, job);
    model_.teams->ranks().Run([&](const Worker& worker) {
      factor.Factor(table_, worker);
      worker.TeamBarrier();
      gptq.Round(table_, worker);
    });
  }

  void RoundToNearest(const RoundingJob& job) {
    const size_t group = rounding_.group_of(job.k), groups = (job.k + group - 1) / group;
    model_.teams->ranks().Run([&](const Worker& worker) {
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
};

}  // namespace

QuantisedLayer QuantiseLayer(StartedModel& model, const TensorSource& source,
                             const QuantScheme& scheme, int layer, LayerStatistics statistics) {
  return LayerQuantiser(model, source, scheme, layer, std::move(statistics)).Run();
}

}  // namespace pinion
