#include "engine/run/task.h"

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"

namespace pinion {
namespace {

bool Classifies(const ModelFiles& files) { return files.spec.classifier.labels > 0; }

ModelTask TaskOf(const ModelFiles& files) {
  if (Classifies(files)) return ModelTask::kScore;
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
