#include "harness/cli/score_reference.h"

#include "engine/base/strings.h"
#include "engine/run/score.h"

namespace pinion::harness {

Result<TemporaryFile> RunReference(const EngineOptions& options,
                                   const std::vector<Prompt>& prompts) {
  PINION_ASSIGN(TemporaryFile logits, TemporaryFile::Make("the reference's logits"));
  PINION_ASSIGN(const auto engine, Engine::Start(options));
  ScoreOptions score;
  score.logits_path = logits.path();
  auto scores = Score(*engine, prompts, score);
  if (!scores)
    return Unexpected(std::move(scores).error().In(
        StrCat("the reference's logits in '", TemporaryFolder(), "' (TMPDIR)")));
  for (size_t i = 0; i < prompts.size(); ++i)
    if (const Json* error = scores->lines[i].Find("error"); error && prompts[i].error)
      return Fail(ErrorCode::kUsage,
                  StrCat("the reference '", options.model, "' cannot score prompt ", i + 1, ": ",
                         error->string()));
  return logits;
}

Status ApplySetting(const std::string& setting, EngineOptions& options) {
  const size_t equals = setting.find('=');
  if (equals == std::string::npos || equals == 0)
    return Fail(ErrorCode::kUsage,
                StrCat("--reference '", setting, "' is not a setting, want NAME=VALUE"));
  const std::string name = setting.substr(0, equals), text = setting.substr(equals + 1);
  const Json known = ToJson(options);
  const Json* field = known.Find(name);
  auto number = Json::Parse(text);
  const bool is_text = (field && field->is_string()) || !number;
  return FromJson(Json::Object{{name, is_text ? Json(text) : *std::move(number)}}, options);
}

Status CheckComparable(const std::string& model, const std::string& reference,
                       const std::vector<Json>& lines, const std::vector<Prompt>& prompts) {
  PINION_ASSIGN(const ModelFiles files, FindModel(model));
  PINION_ASSIGN(const ModelFiles others, FindModel(reference));
  const auto differ = [&](const std::string& how) {
    return Fail(ErrorCode::kUsage, StrCat("'", model, "' and '", reference, "' ", how,
                                          "; only models with the same tokenizer can be compared"));
  };
  if (files.spec.vocabulary != others.spec.vocabulary)
    return differ(StrCat("have vocabularies of ", files.spec.vocabulary, " and ",
                         others.spec.vocabulary, " tokens"));
  if (model == reference) return {};
  auto tokenizer = OpenTokenizer(others);
  PINION_ASSIGN(const auto theirs, EncodePrompts(lines, tokenizer ? tokenizer->get() : nullptr));
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (!prompts[i].error) continue;
    if (!theirs[i].error)
      return differ(StrCat("(line ", i + 1, ": ", theirs[i].error.error().message, ")"));
    if (theirs[i].ids != prompts[i].ids)
      return differ(StrCat("cut line ", i + 1, " into different tokens (", prompts[i].ids.size(),
                           " and ", theirs[i].ids.size(), ")"));
  }
  return {};
}

}  // namespace pinion::harness
