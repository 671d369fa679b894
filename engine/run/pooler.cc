#include "engine/run/pooler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/cross_encoder.h"
#include "kernels/kernels.h"

namespace pinion {
namespace {

// In several sums, which the compiler keeps in one vector.
float Dot(const float* a, const float* b, size_t count) {
  std::array<float, 16> sums{};
  size_t i = 0;
  for (; i + sums.size() <= count; i += sums.size())
    for (size_t j = 0; j < sums.size(); ++j) sums[j] += a[i + j] * b[i + j];
  float sum = std::accumulate(sums.begin(), sums.end(), 0.0f);
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

float Activate(DenseSpec::Activation activation, float x) {
  switch (activation) {
    case DenseSpec::Activation::kNone:
      return x;
    case DenseSpec::Activation::kTanh:
      return std::tanh(x);
    case DenseSpec::Activation::kRelu:
      return std::max(x, 0.0f);
    case DenseSpec::Activation::kGelu:
      return 0.5f * x * (1 + std::erf(x * static_cast<float>(M_SQRT1_2)));
    case DenseSpec::Activation::kSigmoid:
      return Sigmoid(x);
  }
  return x;
}

Result<std::vector<float>> ReadVector(const TensorSource& source, const std::string& name,
                                      const std::vector<int64_t>& shape) {
  PINION_ASSIGN(const TensorInfo info, source.Find(name));
  if (info.shape != shape)
    return Fail(ErrorCode::kCorrupt, StrCat("tensor '", name, "' of ", info.file,
                                            " has not the shape that its "
                                            "config.json asks for"));
  const auto rows = static_cast<size_t>(shape[0]);
  std::vector<float> values(rows * RowElements(shape));
  std::vector<std::byte> scratch;
  kernels::Convert(reinterpret_cast<std::byte*>(values.data()), kernels::Dtype::kF32,
                   source.Rows(info, 0, rows, scratch), info.dtype, values.size());
  return values;
}

Result<size_t> IdOf(const Tokenizer& tokenizer, const char* word) {
  if (const auto id = tokenizer.TokenId(word)) return static_cast<size_t>(*id);
  return Fail(ErrorCode::kUsage,
              StrCat("--task score: the vocabulary has no token '", word,
                     "', by whose logit a generative model scores; use a reranker"));
}

}  // namespace

Result<DenseLayer> DenseLayer::Load(const DenseSpec& spec, const TensorSource& weights) {
  std::unique_ptr<TensorSource> own;
  if (!spec.folder.empty()) {
    PINION_ASSIGN(own, OpenSafetensors(spec.folder));
  }
  const TensorSource& source = own ? *own : weights;
  DenseLayer layer;
  layer.spec_ = spec;
  const auto outputs = static_cast<int64_t>(spec.outputs);
  PINION_ASSIGN(layer.weight_, ReadVector(source, spec.module + ".weight",
                                          {outputs, static_cast<int64_t>(spec.inputs)}));
  if (spec.bias) {
    PINION_ASSIGN(layer.bias_, ReadVector(source, spec.module + ".bias", {outputs}));
  }
  return layer;
}

std::vector<float> DenseLayer::Times(const std::vector<float>& x) const {
  CHECK(x.size() == spec_.inputs) << x.size();
  std::vector<float> y(spec_.outputs);
  for (size_t row = 0; row < y.size(); ++row)
    y[row] = Activate(spec_.activation, Dot(weight_.data() + row * x.size(), x.data(), x.size()) +
                                            (spec_.bias ? bias_[row] : 0.0f));
  return y;
}

Result<std::unique_ptr<Pooler>> Pooler::Load(const ModelFiles& files, ModelTask task,
                                             const TensorSource& weights) {
  std::unique_ptr<Pooler> pooler;
  if (task == ModelTask::kGenerate) return pooler;
  if (task == ModelTask::kScore) {
    pooler.reset(new Pooler(PoolingKind::kLast));
    PINION_TRY(pooler->LoadScores(files, weights));
    return pooler;
  }
  CHECK(files.embedder) << files.name;
  pooler.reset(new Pooler(files.embedder->pooling));
  auto width = static_cast<size_t>(files.spec.hidden);
  for (const DenseSpec& dense : files.embedder->dense) {
    if (dense.inputs != width)
      return Fail(ErrorCode::kCorrupt, dense.folder.empty()
                                           ? StrCat("tensor '", dense.module, ".weight' takes ",
                                                    dense.inputs, " values, want ", width)
                                           : StrCat(dense.folder, "/config.json: 'in_features' is ",
                                                    dense.inputs, ", want ", width));
    width = dense.outputs;
    PINION_ASSIGN(DenseLayer layer, DenseLayer::Load(dense, weights));
    pooler->dense_.push_back(std::move(layer));
  }
  return pooler;
}

Status Pooler::LoadScores(const ModelFiles& files, const TensorSource& weights) {
  if (files.spec.classifier.labels > 0) {
    PINION_ASSIGN(classifier_, Classifier::Load(files.spec, weights));
    kind_ = files.spec.classifier.of_mean ? PoolingKind::kMean : PoolingKind::kFirst;
    return {};
  }
  if (files.yes_no_head) {
    if (files.yes_no_head->inputs != static_cast<size_t>(files.spec.hidden))
      return Fail(ErrorCode::kCorrupt,
                  StrCat("tensor '", files.yes_no_head->module, ".weight' takes ",
                         files.yes_no_head->inputs, " values, want ", files.spec.hidden));
    PINION_ASSIGN(yes_no_head_, DenseLayer::Load(*files.yes_no_head, weights));
    return {};
  }
  PINION_ASSIGN(const auto tokenizer, OpenTokenizer(files));
  PINION_ASSIGN(const size_t yes, IdOf(*tokenizer, "yes"));
  PINION_ASSIGN(const size_t no, IdOf(*tokenizer, "no"));
  yes_no_ = {yes, no};
  return CheckLogitScore(files.folder, static_cast<int64_t>(yes), static_cast<int64_t>(no));
}

Pooler::Rows Pooler::Wanted(size_t tokens) const {
  if (kind_ == PoolingKind::kFirst) return {0, 1};
  return {kind_ == PoolingKind::kLast ? tokens - 1 : 0, tokens};
}

void Pooler::Take(uint64_t sequence, size_t position, const float* row, size_t width) {
  std::vector<float>& pooled = pooled_[sequence];
  if (yes_no_) {
    CHECK(yes_no_->yes < width && yes_no_->no < width) << width;
    pooled = {row[yes_no_->yes] - row[yes_no_->no]};
    return;
  }
  if (pooled.empty())
    pooled.assign(width, kind_ == PoolingKind::kMax ? -std::numeric_limits<float>::infinity() : 0);
  if (kind_ == PoolingKind::kMax) {
    // A NaN stays: it is larger than nothing, and nothing is larger.
    for (size_t i = 0; i < width; ++i)
      if (row[i] > pooled[i] || std::isnan(row[i])) pooled[i] = row[i];
    return;
  }
  const float weight =
      kind_ == PoolingKind::kWeightedMean ? static_cast<float>(position + 1) : 1.0f;
  for (size_t i = 0; i < width; ++i) pooled[i] += weight * row[i];
}

std::vector<float> Pooler::Finish(uint64_t sequence, size_t tokens) {
  std::vector<float> x = std::move(pooled_[sequence]);
  pooled_.erase(sequence);
  const auto count = static_cast<float>(tokens);
  float weights = 1;  // of all rows
  if (kind_ == PoolingKind::kMean) weights = count;
  if (kind_ == PoolingKind::kMeanSqrt) weights = std::sqrt(count);
  if (kind_ == PoolingKind::kWeightedMean) weights = count * (count + 1) / 2;
  for (float& value : x) value /= weights;
  for (const DenseLayer& layer : dense_) x = layer.Times(x);
  if (yes_no_head_) {
    const std::vector<float> logits = yes_no_head_->Times(x);
    return {logits[0] - logits[1]};
  }
  return classifier_ ? classifier_->Scores(x.data()) : x;
}

std::vector<float> FinishEmbedding(std::vector<float> pooled, size_t dimensions, bool normalises) {
  if (dimensions > 0) pooled.resize(std::min(dimensions, pooled.size()));
  if (!normalises) return pooled;
  double squares = 0;
  for (const float value : pooled) squares += double{value} * value;
  if (squares == 0) return pooled;  // has no direction
  const double length = std::sqrt(squares);
  for (float& value : pooled) value = static_cast<float>(value / length);
  return pooled;
}

std::vector<float> Activated(std::vector<float> scores, ScoreActivation activation) {
  if (activation == ScoreActivation::kNone) return scores;
  if (activation == ScoreActivation::kSigmoid || scores.size() == 1) {
    for (float& score : scores) score = Sigmoid(score);
    return scores;
  }
  const float most = *std::max_element(scores.begin(), scores.end());
  float sum = 0;
  for (float& score : scores) sum += score = std::exp(score - most);
  for (float& score : scores) score /= sum;
  return scores;
}

double Cosine(const std::vector<float>& a, const std::vector<float>& b) {
  CHECK(a.size() == b.size()) << a.size();
  double product = 0, of_a = 0, of_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += double{a[i]} * b[i];
    of_a += double{a[i]} * a[i];
    of_b += double{b[i]} * b[i];
  }
  const double lengths = std::sqrt(of_a) * std::sqrt(of_b);
  return lengths > 0 ? product / lengths : 0;
}

}  // namespace pinion
