#pragma once

#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/result.h"
#include "engine/run/options.h"
#include "engine/run/prompts.h"

namespace pinion::harness {

// What `pinion score --compare` compares with: the logits of another model, or of the same one
// under other settings, over the same tokens. Runs `options.model` and keeps its logits in a file
// for ScoreOptions::compare_path. The engine is gone when this returns, so that two models need the
// memory of one. Prompts that the reference refuses are errors.
Result<TemporaryFile> RunReference(const EngineOptions& options,
                                   const std::vector<Prompt>& prompts);

// "dtype=float32" into the field of that name, as profiles name it (kv_cache_space is GiB).
Status ApplySetting(const std::string& setting, EngineOptions& options);

// Whether both models make the same tokens of the prompts and have vocabularies of one size, which
// is what makes their logits comparable; else an error that says what differs.
Status CheckComparable(const std::string& model, const std::string& reference,
                       const std::vector<Json>& lines, const std::vector<Prompt>& prompts);

}  // namespace pinion::harness
