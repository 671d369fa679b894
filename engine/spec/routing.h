#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/base/result.h"

namespace pinion {

// How a router's logits become the scores by which experts are compared.
enum class RouterScore { kSoftmax, kSigmoid, kLogit };
// The score of a group of experts: its best one, or the sum of its two best.
enum class GroupScore { kBest, kTwoBest };

// How a token chooses its experts, as plain data:
//   scores of all experts -> + correction -> the best groups -> the best top_k experts in them
//   -> their scores as weights, normalised and scaled
// Mixtral, Qwen3-MoE: softmax, normalised. GPT-OSS: kLogit, then a softmax over the chosen.
// DeepSeek-V2: softmax over groups by their best. V3: sigmoid, groups by their two best,
// correction.
struct RouterSpec {
  int experts = 0;  // 0: the layer has no experts
  int top_k = 0;    // experts a token uses
  RouterScore score = RouterScore::kSoftmax;
  bool normalise = false;  // the chosen weights are divided by their sum
  float scale = 1;         // multiplies them afterwards
  int groups = 1;          // equal runs of consecutive experts
  int top_groups = 1;      // experts are chosen from these only
  GroupScore group_score = GroupScore::kBest;
  bool bias = false;        // added to the logits
  bool correction = false;  // added to scores for the choice, not for the weights
};

// Numbers that contradict each other (groups that do not divide the experts, ...) are kCorrupt.
Status CheckRouter(const RouterSpec& spec);

// Turns one token's router logits into experts. Holds scratch: use one object per thread.
class TokenRouter {
 public:
  explicit TokenRouter(const RouterSpec& spec);  // must have passed CheckRouter

  // Writes the chosen experts, best first, and their weights.
  //   logits           [experts]; the router's bias already added
  //   correction       [experts]; null if the spec has none
  //   chosen, weights  [top_k]; the experts are distinct whatever the logits
  // All arithmetic is float32. Of equal scores the lower expert wins, so that all ranks choose
  // alike.
  void Route(const float* logits, const float* correction, int32_t* chosen, float* weights);

 private:
  void Score(const float* logits);
  void DropWeakGroups();
  void Weigh(float* weights) const;

  const RouterSpec spec_;
  std::vector<float> scores_, keys_;  // for the weights; for the choice
  std::vector<float> group_keys_;
  std::vector<int32_t> order_;
};

}  // namespace pinion
