#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/checkpoint/tensors.h"
#include "engine/run/prompts.h"

namespace pinion {

// How far a model's logits are from a reference's: those that an earlier `pinion score --logits`
// wrote for the same prompts. Measures the cost of quantised weights, activations and KV.
class Comparison {
 public:
  // An error if the file's shapes do not match the prompts and the vocabulary.
  static Result<Comparison> Open(const std::string& path, const std::vector<Prompt>& prompts,
                                 size_t vocabulary);

  // The model's logits of one position, which are finite; `next` is the token that follows, -1 at
  // the end. False: the reference's are not finite.
  bool Take(size_t prompt, size_t position, const float* logits, int32_t next);
  // Leaves a prompt out of the summary.
  void Drop(size_t prompt) { sums_[prompt] = {}; }

  // Over the positions of one prompt, or of all:
  //   positions            how many logits were compared
  //   kl_nats, kl_p99_nats, kl_max_nats   KL divergence from the reference per position: the mean,
  //                        the 99th percentile (null below 100 positions), the largest
  //   top1_agreement       share of positions whose best token is the reference's
  //   perplexity, reference_perplexity, perplexity_difference   over the tokens that follow
  Json Line(size_t prompt) const { return Describe(sums_[prompt]); }
  Json Summary() const;

 private:
  struct Sums {
    std::vector<double> divergences;  // of each position, in nats
    double agreed = 0;
    double logprob = 0, reference_logprob = 0, tokens = 0;
  };
  static Json Describe(const Sums& sums);

  std::shared_ptr<const TensorSource> reference_;
  std::vector<TensorInfo> tensors_;  // one per prompt
  std::vector<Sums> sums_;
  size_t vocabulary_ = 0;
  std::vector<std::byte> scratch_;
};

}  // namespace pinion
