#include "engine/run/task.h"

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"
#include "engine/checkpoint/cross_encoder.h"

namespace pinion {
namespace {

bool Classifies(const ModelFiles& files) { return files.spec.classifier.labels > 0; }

ModelTask TaskOf(const ModelFiles& files) {
  if (Classifies(files) || files.yes_no_head) return ModelTask::kScore;
  return files.spec.has_head() ? ModelTask::kGenerate : ModelTask::kEmbed;
}

tl::unexpected<Error> Cannot(const ModelFiles& files, const std::string& asked) {
  return Fail(ErrorCode::kUsage,
              StrCat("--task ", asked, ": '", files.name, "' (", files.spec.architecture,
                     ") can only ", Name(TaskOf(files)), "; leave --task out"));
}

// config.json's id2label, or LABEL_0, LABEL_1, ... as in transformers.
std::vector<std::string> LabelsOf(const ModelFiles& files) {
  std::vector<std::string> labels;
  const Json* names = files.config.Find("id2label");
  for (int i = 0; i < files.spec.classifier.labels; ++i) {
    const Json* name = names && names->is_object() ? names->Find(std::to_string(i)) : nullptr;
    labels.push_back(name && name->is_string() ? name->string() : StrCat("LABEL_", i));
  }
  return labels;
}

// The function that a cross-encoder's pairs are scored with, where sentence-transformers keeps it:
// in a file of its own, and before its version 5.4, and before 4.
Result<ScoreActivation> PairActivation(const ModelFiles& files) {
  const char* key = "activation_fn";
  std::string name;
  if (!files.folder.empty()) {
    PINION_ASSIGN(name, CrossEncoderActivation(files.folder));
  }
  if (name.empty()) {
    const Json* own = files.config.Find("sentence_transformers");
    const Json* found = own ? own->Find(key) : nullptr;
    if (!found) found = files.config.Find(key = "sbert_ce_default_activation_function");
    if (!found || found->is_null()) return ScoreActivation::kSigmoid;
    name = found->is_string() ? found->string() : found->Dump();
  }
  const std::string_view last = std::string_view(name).substr(name.rfind('.') + 1);
  if (last == "Identity") return ScoreActivation::kNone;
  if (last == "Sigmoid") return ScoreActivation::kSigmoid;
  return Fail(ErrorCode::kUnsupported, StrCat("'", key, "' is '", name.substr(0, 80),
                                              "', want Identity or Sigmoid of torch.nn"));
}

// As transformers trains classifiers.
ScoreActivation LabelActivation(const Json& config) {
  const Json* problem = config.Find("problem_type");
  if (problem && *problem == Json("regression")) return ScoreActivation::kNone;
  if (problem && *problem == Json("multi_label_classification")) return ScoreActivation::kSigmoid;
  return ScoreActivation::kSoftmax;
}

void PrepareToEmbed(ModelFiles& files) {
  DropHead(files.spec);
  if (files.embedder) return;
  files.embedder.emplace();
  files.embedder->pooling = files.spec.bidirectional ? PoolingKind::kMean : PoolingKind::kLast;
  files.embedder->normalises = true;
}

}  // namespace

const char* Name(ModelTask task) {
  constexpr const char* kNames[] = {"generate", "embed", "score"};
  return kNames[static_cast<size_t>(task)];
}

Result<ModelTask> ApplyTask(const std::string& asked, ModelFiles& files) {
  const ModelTask own = TaskOf(files);
  ModelTask task = own;
  for (const auto each : {ModelTask::kGenerate, ModelTask::kEmbed, ModelTask::kScore})
    if (asked == Name(each)) task = each;
  if (task != own && own != ModelTask::kGenerate) return Cannot(files, asked);
  if (task == ModelTask::kEmbed) PrepareToEmbed(files);
  if (files.spec.classifier.labels == 1) PINION_TRY(PairActivation(files));
  return task;
}

PoolingFacts FactsOf(const ModelFiles& files, ModelTask task) {
  PoolingFacts facts;
  facts.task = task;
  facts.has_types = files.spec.token_types > 1;
  if (task == ModelTask::kScore) {
    facts.labels = LabelsOf(files);
    facts.yes_no = !Classifies(files);
    facts.width = facts.yes_no ? 1 : facts.labels.size();
    if (facts.yes_no) return facts;
    facts.pair_activation = PairActivation(files).value_or(facts.pair_activation);
    facts.label_activation = LabelActivation(files.config);
  } else if (task == ModelTask::kEmbed) {
    facts.embedder = files.embedder.value_or(EmbedderSpec());
    facts.width = facts.embedder.width(static_cast<size_t>(files.spec.hidden));
    facts.normalises = facts.embedder.normalises;
  }
  return facts;
}

size_t LongestText(const PoolingFacts& facts, size_t max_model_len) {
  return std::min(max_model_len, facts.embedder.max_tokens.value_or(max_model_len));
}

}  // namespace pinion
