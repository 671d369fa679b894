#pragma once

#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/result.h"
#include "engine/run/options.h"
#include "engine/run/prompts.h"

namespace pinion::harness {

// The reference of `pinion score --compare`: the logits of another model, or of the same one
// under other settings, over the same tokens. Runs `options.model` and keeps its logits in a file
// for ScoreOptions::compare_path. The engine is gone when this returns, so that two models need the
// memory of one. Prompts that the reference refuses are errors.
Result<TemporaryFile> RunReference(const EngineOptions& options,
                                   const std::vector<Prompt>& prompts);

// Sets "dtype=float32" in the field of that name, by its name in profiles (kv_cache_space is GiB).
Status ApplySetting(const std::string& setting, EngineOptions& options);

// Checks that both models cut the prompts into the same tokens and have vocabularies of one size,
// which makes their logits comparable; the error names the difference.
Status CheckComparable(const std::string& model, const std::string& reference,
                       const std::vector<Json>& lines, const std::vector<Prompt>& prompts);

}  // namespace pinion::harness
