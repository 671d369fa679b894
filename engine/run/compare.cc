#include "engine/run/compare.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/strings.h"
#include "kernels/kernels.h"

namespace pinion {
namespace {

constexpr size_t kSmallestSampleOfP99 = 100;  // fewer positions have no value beyond the 99th %

}  // namespace

Result<Comparison> Comparison::Open(const std::string& path, const std::vector<Prompt>& prompts,
                                    size_t vocabulary) {
  Comparison comparison;
  PINION_ASSIGN(comparison.reference_, OpenSafetensorsFile(path));
  comparison.vocabulary_ = vocabulary;
  comparison.sums_.resize(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    PINION_ASSIGN(const TensorInfo info,
                  comparison.reference_->Find(StrCat("prompt", i, ".logits")));
    const std::vector<int64_t> shape{static_cast<int64_t>(prompts[i].ids.size()),
                                     static_cast<int64_t>(vocabulary)};
    if (info.shape != shape || info.dtype != kernels::Dtype::kF32)
      return Fail(
          ErrorCode::kUsage,
          StrCat("'", path, "' has no matching logits for prompt ", i, " (", shape[0],
                 " tokens, vocabulary ", vocabulary,
                 "); write them with 'pinion score REFERENCE --logits' for the same input"));
    comparison.tensors_.push_back(info);
  }
  return comparison;
}

bool Comparison::Take(size_t prompt, size_t position, const float* logits, int32_t next) {
  const auto* reference =
      reinterpret_cast<const float*>(reference_->Rows(tensors_[prompt], position, 1, scratch_));
  const kernels::Table& table = kernels::TableFor(kernels::Isa::kScalar);
  const double own = table.log_sum_exp(logits, vocabulary_);
  const double theirs = table.log_sum_exp(reference, vocabulary_);
  if (!std::isfinite(theirs)) return false;
  Sums& sums = sums_[prompt];
  double divergence = 0;
  for (size_t i = 0; i < vocabulary_; ++i) {
    const double logprob = reference[i] - theirs;
    divergence += std::exp(logprob) * (logprob - (logits[i] - own));
  }
  sums.divergences.push_back(std::max(0.0, divergence));  // rounding may leave less than 0
  const bool agrees = table.argmax(logits, vocabulary_) == table.argmax(reference, vocabulary_);
  sums.agreed += agrees ? 1 : 0;
  if (next < 0) return true;
  sums.logprob += logits[next] - own;
  sums.reference_logprob += reference[next] - theirs;
  sums.tokens += 1;
  return true;
}

Json Comparison::Summary() const {
  Sums all;
  for (const Sums& sums : sums_) {
    all.divergences.insert(all.divergences.end(), sums.divergences.begin(), sums.divergences.end());
    all.agreed += sums.agreed;
    all.logprob += sums.logprob, all.reference_logprob += sums.reference_logprob;
    all.tokens += sums.tokens;
  }
  return Describe(all);
}

Json Comparison::Describe(const Sums& sums) {
  Json json = Json::MakeObject();
  std::vector<double> sorted = sums.divergences;
  if (sorted.empty()) return json;
  std::sort(sorted.begin(), sorted.end());
  const auto positions = static_cast<double>(sorted.size());
  const bool has_p99 = sorted.size() >= kSmallestSampleOfP99;
  json.Set("positions", sorted.size());
  json.Set("kl_nats", std::accumulate(sorted.begin(), sorted.end(), 0.0) / positions);
  json.Set("kl_p99_nats", has_p99 ? Json(sorted[(sorted.size() - 1) * 99 / 100]) : Json());
  json.Set("kl_max_nats", sorted.back());
  json.Set("top1_agreement", sums.agreed / positions);
  if (sums.tokens == 0) return json;
  const double own = std::exp(-sums.logprob / sums.tokens);
  const double reference = std::exp(-sums.reference_logprob / sums.tokens);
  json.Set("perplexity", own);
  json.Set("reference_perplexity", reference);
  json.Set("perplexity_difference", own - reference);
  return json;
}

}  // namespace pinion
