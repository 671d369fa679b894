#pragma once

#include <vector>

#include "engine/base/result.h"
#include "engine/checkpoint/tensors.h"
#include "engine/spec/spec.h"

namespace pinion {

// The head of a cross-encoder (ClassifierSpec), in float32: it takes a vector a sequence, so that
// its work is nothing beside the encoder's. Immutable; thread-safe.
class Classifier {
 public:
  // The spec must have one.
  static Result<Classifier> Load(const DecoderSpec& spec, const TensorSource& source);

  // x: [hidden], as ClassifierSpec says; returns [labels] scores, before any softmax or sigmoid.
  std::vector<float> Scores(const float* x) const;

 private:
  struct Linear {
    size_t outputs = 0;
    std::vector<float> weight, bias;  // [outputs][inputs]; [outputs] or nothing
    std::vector<float> Times(const std::vector<float>& x) const;
  };
  static Result<Linear> LoadLinear(const TensorSource& source, const std::string& name, bool bias);

  ClassifierSpec spec_;
  size_t hidden_ = 0;
  float norm_eps_ = 0;
  Linear dense_, out_;
  std::vector<float> norm_weight_, norm_bias_;  // [hidden] or nothing
};

}  // namespace pinion
