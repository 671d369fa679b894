#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/base/result.h"

namespace pinion {

// What a router's logits become before experts are compared.
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
  int top_groups = 1;      // whose experts alone may be chosen
  GroupScore group_score = GroupScore::kBest;
  bool bias = false;        // added to the logits
  bool correction = false;  // added to scores where they are compared, not where they weigh
};

// Numbers that contradict each other (groups that do not divide the experts, ...) are kCorrupt.
Status CheckRouter(const RouterSpec& spec);

// Router logits of one token to its experts. Holds scratch: one object a thread.
class TokenRouter {
 public:
  explicit TokenRouter(const RouterSpec& spec);  // checked

  // Writes the chosen experts, best first, and their weights.
  //   logits           [experts]; the router's bias already added
  //   correction       [experts]; null where the spec has none
  //   chosen, weights  [top_k]; the experts are distinct whatever the logits
  // All arithmetic is float32. Equal scores: the lower expert wins, so that all ranks choose alike.
  void Route(const float* logits, const float* correction, int32_t* chosen, float* weights);

 private:
  void Score(const float* logits);
  void DropWeakGroups();
  void Weigh(float* weights) const;

  const RouterSpec spec_;
  std::vector<float> scores_, keys_;  // what weighs; what is compared
  std::vector<float> group_keys_;
  std::vector<int32_t> order_;
};

}  // namespace pinion
