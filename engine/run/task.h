#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/checkpoint/model.h"

namespace pinion {

// The task of a model: to generate text, to embed texts, or to score a text or a pair of them.
enum class ModelTask { kGenerate, kEmbed, kScore };
const char* Name(ModelTask task);  // "generate", "embed", "score"

// The model for the task of --task ("auto": the one that it was made for). A model that is to embed
// loses its head, and has an EmbedderSpec: without modules.json the mean of all tokens or, if
// attention is causal, the last token, normalised. A generative model scores by the logit of "yes"
// less that of "no". ErrorCode::kUsage if the model cannot do what is asked. kUnsupported if its
// config.json asks for an activation of scores that Pinion does not have.
Result<ModelTask> ApplyTask(const std::string& asked, ModelFiles& files);

// The scores of a classifier's labels: the logits themselves, the sigmoid of each, or a softmax of
// them all (of a single one its sigmoid).
enum class ScoreActivation { kNone, kSigmoid, kSoftmax };

// Facts about the output of a model that embeds or scores. `files`: after ApplyTask.
struct PoolingFacts {
  ModelTask task = ModelTask::kGenerate;
  size_t width = 0;                 // of an embedding; or labels
  bool normalises = false;          // embeddings are of length 1
  std::vector<std::string> labels;  // of a classifier; else empty
  bool has_types = false;           // its tokens have types
  bool yes_no = false;              // it scores by the logits of "yes" and "no"
  // As config.json says: of a pair's score, and of the labels of a text.
  ScoreActivation pair_activation = ScoreActivation::kSigmoid;
  ScoreActivation label_activation = ScoreActivation::kSoftmax;
  // How text becomes tokens: of an embedder, if the folder says it.
  EmbedderSpec embedder = {};

  // Whether it gives a pair of texts one score.
  bool scores_pairs() const { return task == ModelTask::kScore && width == 1; }
};
PoolingFacts FactsOf(const ModelFiles& files, ModelTask task);

// The most tokens of a text: the model's length, or less if its folder says so.
size_t LongestText(const PoolingFacts& facts, size_t max_model_len);

}  // namespace pinion
