#include "engine/sample/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/base/check.h"
#include "engine/sample/random.h"
#include "engine/sample/select.h"

namespace pinion {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kGreedyBelow = 1e-5;

// Separates the random streams of one token's tries; UniformAt mixes seeds, so any odd number
// works.
constexpr uint64_t kTryStep = 0xa0761d6478bd642f;

bool Holds(std::span<const float> logits, int32_t id) {
  return id >= 0 && static_cast<size_t>(id) < logits.size();
}

// Of logits or of a sum of their exponentials: whether it can be the largest of a distribution. All
// may be masked, but a NaN or an overflow makes nonsense of every other one, too.
bool IsUsable(float largest) { return largest < kInfinity; }

// log p of a logit; NaN, if all are -infinity, is nothing that JSON can represent.
double LogProbability(float logit, float log_sum) {
  const double value = static_cast<double>(logit) - log_sum;
  return std::isnan(value) ? -std::numeric_limits<double>::infinity() : value;
}

// The unmodified logits with their normaliser; empty if no logprobs are requested.
struct RawLogits {
  std::vector<float> values;
  float log_sum = 0;
};

RawLogits KeepRaw(const kernels::Table& table, std::span<const float> logits) {
  return {std::vector<float>(logits.begin(), logits.end()),
          table.log_sum_exp(logits.data(), logits.size())};
}

void AddLogprobs(const kernels::Table& table, std::span<const float> raw, float log_sum, int count,
                 SampledToken& token) {
  token.logprob = LogProbability(raw[static_cast<size_t>(token.id)], log_sum);
  if (count == 0) return;
  for (const Candidate& best : Best(table, raw, static_cast<size_t>(count)))
    token.top.emplace_back(best.id, LogProbability(best.value, log_sum));
}

// Weights with the sum of every kBlock of them, so that a draw skips whole blocks.
struct Weights {
  // 4 KiB: 152k weights have 149 sums to walk, and then one block.
  static constexpr size_t kBlock = 1024;
  std::span<float> values;
  std::vector<float> block_sums;
  double sum = 0;
};

// Logits become weights exp((x - max) / temperature), those below the min-p share of the largest
// (whose weight is 1) and NaN become 0. `max` is finite.
Weights Weigh(const kernels::Table& table, std::span<float> logits, float max, double temperature,
              double min_p) {
  Weights weights{logits, {}, 0};
  weights.block_sums.reserve(logits.size() / Weights::kBlock + 1);
  const float scale = static_cast<float>(1 / temperature), least = static_cast<float>(min_p);
  for (size_t at = 0; at < logits.size(); at += Weights::kBlock) {
    const size_t count = std::min(Weights::kBlock, logits.size() - at);
    weights.block_sums.push_back(table.exp_weights(logits.data() + at, count, max, scale, least));
    weights.sum += weights.block_sums.back();
  }
  return weights;
}

// Weights are in [0, 1], so floats are in the order of their bits: the exponent and three bits
// of the mantissa make 1017 buckets, each an eighth of a power of two wide.
constexpr size_t kBuckets = 1024;
size_t BucketOf(float weight) { return std::bit_cast<uint32_t>(weight) >> 20; }

// The last of the best weights that together hold `mass`. Finds its bucket first and then the
// border among that bucket's few weights, so that the whole vocabulary is never sorted.
Candidate FindBorder(std::span<const float> weights, double mass) {
  std::array<double, kBuckets> held{};
  for (const float weight : weights) held[BucketOf(weight)] += weight;
  size_t bucket = kBuckets - 1;
  for (; bucket > 0 && held[bucket] < mass; --bucket) mass -= held[bucket];
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < weights.size(); ++i)
    if (BucketOf(weights[i]) == bucket) candidates.push_back({weights[i], static_cast<int32_t>(i)});
  if (candidates.empty()) return {0, std::numeric_limits<int32_t>::max()};  // rounding: keep all
  return NucleusBorder(candidates, mass);
}

// Zeroes the weights outside the smallest set of best ones that holds `top_p` of the sum; returns
// the sum of the others.
double KeepTopP(std::span<float> weights, double sum, double top_p) {
  const Candidate border = FindBorder(weights, top_p * sum);
  double kept = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (Better(border, {weights[i], static_cast<int32_t>(i)})) weights[i] = 0;
    kept += weights[i];
  }
  return kept;
}

// The index at which the running sum of the weights passes `target`, else the last one above 0.
// Always in order of ids, not of weights: a logit that differs in its last bit then shifts the
// borders a little, but cannot swap two tokens.
size_t Walk(std::span<const float> weights, double target) {
  double passed = 0;
  size_t last = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0) continue;
    passed += weights[i];
    last = i;
    if (passed > target) break;
  }
  return last;
}

// The same over blocks first.
size_t Walk(const Weights& weights, double target) {
  double passed = 0, before = 0;  // of all blocks so far; of those before `last`
  size_t last = 0;
  for (size_t block = 0; block < weights.block_sums.size() && passed <= target; ++block) {
    const double sum = weights.block_sums[block];
    if (sum <= 0) continue;
    last = block;
    before = passed;
    passed += sum;
  }
  const size_t begin = last * Weights::kBlock;
  const size_t count = std::min(Weights::kBlock, weights.values.size() - begin);
  return begin + Walk(weights.values.subspan(begin, count), target - before);
}

// Sum of the weights that are at least `least`; doubles over blocks keep it exact enough.
double MassAtLeast(const kernels::Table& table, std::span<const float> weights, float least) {
  double mass = 0;
  for (size_t at = 0; at < weights.size(); at += Weights::kBlock)
    mass += table.sum_at_least(weights.data() + at, std::min(Weights::kBlock, weights.size() - at),
                               least);
  return mass;
}

// Whether `id` is in the nucleus: the weights better than its own hold less than `mass`. Of equal
// weights the lower id is the better one.
bool InNucleus(const kernels::Table& table, std::span<const float> weights, size_t id,
               double mass) {
  const float weight = weights[id];
  const float above = std::nextafter(weight, kInfinity);
  return MassAtLeast(table, weights.first(id), weight) +
             MassAtLeast(table, weights.subspan(id + 1), above) <
         mass;
}

// Draws from all weights, and again if the token lies outside the nucleus. This rejection gives the
// distribution of the nucleus alone without finding its border, which takes ten times as long. A
// draw is accepted with a probability of at least top_p; after a few rejections (bad luck, or a
// small top_p) the border is found after all.
size_t DrawFromNucleus(const kernels::Table& table, const Weights& weights, double top_p,
                       uint64_t seed, uint64_t number) {
  constexpr uint64_t kTries = 4;
  for (uint64_t i = 0; i < kTries; ++i) {
    const size_t token = Walk(weights, UniformAt(seed + i * kTryStep, number) * weights.sum);
    if (InNucleus(table, weights.values, token, top_p * weights.sum)) return token;
  }
  const double sum = KeepTopP(weights.values, weights.sum, top_p);
  return Walk(weights.values, UniformAt(seed + kTries * kTryStep, number) * sum);
}

// The index of a logit drawn at random; `max` is the largest of them. Overwrites them.
size_t DrawAny(const kernels::Table& table, const SamplingParams& params, std::span<float> logits,
               float max, uint64_t seed, uint64_t number) {
  const Weights weights = Weigh(table, logits, max, params.temperature, params.min_p);
  if (params.top_p >= 1) return Walk(weights, UniformAt(seed, number) * weights.sum);
  return DrawFromNucleus(table, weights, params.top_p, seed, number);
}

// The same among the k best, sorted by id so that Walk sees the order it expects.
size_t DrawFromTopK(const kernels::Table& table, const SamplingParams& params,
                    std::span<const float> logits, float max, uint64_t seed, uint64_t number) {
  std::vector<Candidate> kept = Best(table, logits, static_cast<size_t>(params.top_k));
  std::sort(kept.begin(), kept.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  std::vector<float> values;
  for (const Candidate& candidate : kept) values.push_back(candidate.value);
  return static_cast<size_t>(kept[DrawAny(table, params, values, max, seed, number)].id);
}

bool Allows(std::span<const uint32_t> mask, size_t id) {
  return id / 32 < mask.size() && (mask[id / 32] >> (id % 32) & 1) != 0;
}

// Forbids what the mask does not allow. If all that it allows is forbidden already (a grammar that
// may only end, before min_tokens), its tokens become equally likely: a text that is not of the
// grammar is worse than one that is too short.
// Most words of a mask allow nothing: those are filled at once.
void KeepMasked(std::span<float> logits, std::span<const uint32_t> mask) {
  bool any = false;
  for (size_t at = 0; at < logits.size(); at += 32) {
    const std::span<float> part = logits.subspan(at, std::min<size_t>(32, logits.size() - at));
    const uint32_t allowed = at / 32 < mask.size() ? mask[at / 32] : 0;
    if (allowed == 0) {
      std::fill(part.begin(), part.end(), -kInfinity);
      continue;
    }
    for (size_t i = 0; i < part.size(); ++i) {
      if ((allowed >> i & 1) == 0)
        part[i] = -kInfinity;
      else
        any = any || part[i] > -kInfinity;
    }
  }
  if (any) return;
  for (size_t id = 0; id < logits.size(); ++id)
    if (Allows(mask, id)) logits[id] = 0;
}

}  // namespace

SampledToken RateToken(const kernels::Table& table, std::span<const float> logits, int32_t id,
                       int count) {
  CHECK(Holds(logits, id)) << "token " << id << " of " << logits.size();
  SampledToken token;
  const float log_sum = table.log_sum_exp(logits.data(), logits.size());
  token.id = IsUsable(log_sum) ? id : SampledToken::kNotFinite;
  if (token.id < 0) return token;
  AddLogprobs(table, logits, log_sum, count, token);
  const float own = logits[static_cast<size_t>(id)];
  const auto better =
      std::count_if(logits.begin(), logits.end(), [own](float x) { return x > own; });
  token.rank = 1 + static_cast<uint32_t>(better);
  return token;
}

Sampler::Sampler(const SamplingParams& params, uint64_t seed, std::vector<int32_t> eos_ids,
                 std::span<const int32_t> prompt)
    : params_(params), seed_(seed), eos_ids_(std::move(eos_ids)) {
  if (params_.thought.any()) thought_.emplace(params_.thought);
  if (!penalises()) return;
  if (params_.penalty_window) {
    const size_t seen = std::min(*params_.penalty_window, prompt.size());
    for (const int32_t id : prompt.last(seen)) Count(id);
    return;
  }
  if (params_.repetition_penalty == 1) return;
  prompt_ids_.assign(prompt.begin(), prompt.end());
  std::sort(prompt_ids_.begin(), prompt_ids_.end());
  prompt_ids_.erase(std::unique(prompt_ids_.begin(), prompt_ids_.end()), prompt_ids_.end());
}

bool Sampler::penalises() const {
  if (params_.penalty_window == 0) return false;
  return params_.repetition_penalty != 1 || params_.presence_penalty != 0 ||
         params_.frequency_penalty != 0;
}

SampledToken Sampler::Sample(const kernels::Table& table, std::span<float> logits,
                             std::span<const uint32_t> mask) {
  CHECK(!logits.empty());
  RawLogits raw;
  if (params_.logprobs >= 0) raw = KeepRaw(table, logits);
  SampledToken token;
  token.id = Choose(table, logits, mask);
  if (token.id < 0) return token;
  if (params_.logprobs >= 0) AddLogprobs(table, raw.values, raw.log_sum, params_.logprobs, token);
  Take(token.id);
  return token;
}

void Sampler::Take(int32_t id) {
  ++drawn_;
  if (penalises()) Count(id);
  if (!params_.bad_words_ids.empty()) output_.push_back(id);
  if (thought_) thought_->Take(id);
}

// Forbidding tokens overwrites their logits, so these are checked before; otherwise Draw, which
// reads all of them anyway, finds the ones that are not finite.
int32_t Sampler::Choose(const kernels::Table& table, std::span<float> logits,
                        std::span<const uint32_t> mask) const {
  const auto forced = thought_ ? thought_->forced() : std::nullopt;
  const bool hides = forced || !mask.empty() || forbids();
  if (hides && !IsUsable(table.max(logits.data(), logits.size()))) return SampledToken::kNotFinite;
  if (forced && Holds(logits, *forced)) return *forced;
  Adjust(logits);
  if (mask.empty() || (thought_ && thought_->within())) return Draw(table, logits);
  const auto opening = thought_ ? thought_->opening() : std::nullopt;
  if (!opening || !Holds(logits, *opening)) {
    KeepMasked(logits, mask);
    return Draw(table, logits);
  }
  if (thought_->opened()) return *opening;
  float& begins = logits[static_cast<size_t>(*opening)];
  const float kept = begins;
  KeepMasked(logits, mask);
  begins = kept;
  return Draw(table, logits);
}

bool Sampler::forbids() const {
  return !params_.allowed_token_ids.empty() || !params_.bad_words_ids.empty() ||
         drawn_ < static_cast<size_t>(params_.min_tokens);
}

void Sampler::AllowOnlyAllowed(std::span<float> logits) const {
  if (params_.allowed_token_ids.empty()) return;
  std::vector<float> kept;
  for (const int32_t id : params_.allowed_token_ids)
    kept.push_back(Holds(logits, id) ? logits[static_cast<size_t>(id)] : 0);
  std::fill(logits.begin(), logits.end(), -kInfinity);
  for (size_t i = 0; i < kept.size(); ++i) {
    const int32_t id = params_.allowed_token_ids[i];
    if (Holds(logits, id)) logits[static_cast<size_t>(id)] = kept[i];
  }
}

void Sampler::MaskBadWords(std::span<float> logits) const {
  for (const std::vector<int32_t>& word : params_.bad_words_ids) {
    const size_t before = word.size() - 1;
    if (before > output_.size() || !Holds(logits, word.back())) continue;
    if (std::equal(word.begin(), word.end() - 1, output_.end() - static_cast<ptrdiff_t>(before)))
      logits[static_cast<size_t>(word.back())] = -kInfinity;
  }
}

void Sampler::Adjust(std::span<float> logits) const {
  AllowOnlyAllowed(logits);
  MaskBadWords(logits);
  if (drawn_ < static_cast<size_t>(params_.min_tokens)) {
    for (const auto* ids : {&eos_ids_, &params_.stop_token_ids})
      for (const int32_t id : *ids)
        if (Holds(logits, id)) logits[static_cast<size_t>(id)] = -kInfinity;
  }
  for (const auto& [id, bias] : params_.logit_bias)
    if (Holds(logits, id)) logits[static_cast<size_t>(id)] += static_cast<float>(bias);
  if (penalises()) Penalise(logits);
}

void Sampler::Count(int32_t id) {
  ++counts_[id];
  if (!params_.penalty_window) return;
  window_.push_back(id);
  if (window_.size() <= *params_.penalty_window) return;
  const auto oldest = counts_.find(window_.front());
  if (--oldest->second == 0) counts_.erase(oldest);
  window_.pop_front();
}

void Sampler::Penalise(std::span<float> logits) const {
  const float repetition = static_cast<float>(params_.repetition_penalty);
  const auto repeat = [&](int32_t id) {
    if (!Holds(logits, id)) return;
    float& x = logits[static_cast<size_t>(id)];
    x = x > 0 ? x / repetition : x * repetition;
  };
  if (repetition != 1) {
    for (const int32_t id : prompt_ids_) repeat(id);
    for (const auto& [id, count] : counts_)
      if (!std::binary_search(prompt_ids_.begin(), prompt_ids_.end(), id)) repeat(id);
  }
  for (const auto& [id, count] : counts_)
    if (Holds(logits, id))
      logits[static_cast<size_t>(id)] -=
          static_cast<float>(params_.frequency_penalty * count + params_.presence_penalty);
}

int32_t Sampler::Draw(const kernels::Table& table, std::span<float> logits) const {
  if (params_.temperature < kGreedyBelow) {
    const size_t best = table.argmax(logits.data(), logits.size());
    const bool usable = best < logits.size() && IsUsable(logits[best]);
    return usable ? static_cast<int32_t>(best) : SampledToken::kNotFinite;
  }
  const float max = table.max(logits.data(), logits.size());
  if (!IsUsable(max)) return SampledToken::kNotFinite;
  if (max == -kInfinity) return 0;  // everything is masked, and of equals the lowest id is chosen
  const bool few = params_.top_k > 0 && static_cast<size_t>(params_.top_k) < logits.size();
  const size_t drawn = few ? DrawFromTopK(table, params_, logits, max, seed_, drawn_)
                           : DrawAny(table, params_, logits, max, seed_, drawn_);
  return static_cast<int32_t>(drawn);
}

}  // namespace pinion
