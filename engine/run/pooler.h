#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/base/result.h"
#include "engine/checkpoint/model.h"
#include "engine/checkpoint/tensors.h"
#include "engine/decoder/classifier.h"
#include "engine/run/task.h"

namespace pinion {

// A linear of an embedder, in float32: it takes one vector a text.
class DenseLayer {
 public:
  // `weights`: the model's own, if the layer is among them.
  static Result<DenseLayer> Load(const DenseSpec& spec, const TensorSource& weights);
  std::vector<float> Times(const std::vector<float>& x) const;

 private:
  DenseSpec spec_;
  std::vector<float> weight_, bias_;  // [outputs][inputs]; [outputs] or nothing
};

// Makes one vector out of a sequence's rows: an embedding, not yet normalised; the scores of a
// classifier's labels, before softmax or sigmoid; or the logit of "yes" less that of "no". Rows
// come in order, in as many steps as the sequence takes. Thread rule: one thread.
class Pooler {
 public:
  // `weights`: the model's own. Null if the model generates.
  static Result<std::unique_ptr<Pooler>> Load(const ModelFiles& files, ModelTask task,
                                              const TensorSource& weights);

  // The rows of a sequence of so many tokens that Take wants, [first, last).
  struct Rows {
    size_t first, last;
  };
  Rows Wanted(size_t tokens) const;
  // row: [width], the decoder's output: a last hidden state, or logits.
  void Take(uint64_t sequence, size_t position, const float* row, size_t width);
  // Once all of a sequence's rows are taken; forgets them.
  std::vector<float> Finish(uint64_t sequence, size_t tokens);
  void Drop(uint64_t sequence) { pooled_.erase(sequence); }

 private:
  explicit Pooler(PoolingKind kind) : kind_(kind) {}
  Status LoadScores(const ModelFiles& files, const TensorSource& weights);

  PoolingKind kind_;
  std::vector<DenseLayer> dense_;
  std::optional<Classifier> classifier_;
  struct YesNo {
    size_t yes, no;
  };
  std::optional<YesNo> yes_no_;                    // of rows of logits
  std::optional<DenseLayer> yes_no_head_;          // of hidden states
  std::map<uint64_t, std::vector<float>> pooled_;  // of sequences whose rows are not all there yet
};

// An embedding as clients get it: its first `dimensions` elements (0: all), of length 1 if it
// normalises.
std::vector<float> FinishEmbedding(std::vector<float> pooled, size_t dimensions, bool normalises);
std::vector<float> Activated(std::vector<float> scores, ScoreActivation activation);
// Of two vectors of one length.
double Cosine(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace pinion
