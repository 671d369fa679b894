#include "engine/run/sequence_of.h"

#include <algorithm>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

// A model does what it was started for; types are those that it has.
Status CheckTask(const Request& request, const StartedModel& model) {
  if (request.pool != (model.pooler != nullptr))
    return Fail(ErrorCode::kUsage,
                StrCat("the model was started to ", Name(model.info.task), ", not to ",
                       request.pool ? "embed or score" : "generate"));
  if (!request.types.empty() && request.types.size() != request.prompt_ids.size())
    return Fail(ErrorCode::kUsage, StrCat("there are ", request.types.size(), " types for ",
                                          request.prompt_ids.size(), " tokens"));
  const int types = std::max(1, model.files.spec.token_types);
  for (const int32_t type : request.types)
    if (type < 0 || type >= types)
      return Fail(ErrorCode::kUsage,
                  StrCat("token type ", type, " is not one of the model's ", types));
  return {};
}

Status CheckTokens(const Request& request, int vocabulary) {
  for (int32_t id : request.prompt_ids)
    if (id < 0 || id >= vocabulary)
      return Fail(ErrorCode::kUsage, StrCat("prompt token ", id, " is outside the vocabulary of ",
                                            vocabulary, " tokens"));
  PINION_TRY(Validate(request.params));
  const auto unknown = FindUnknownId(request.params, static_cast<size_t>(vocabulary));
  if (!unknown) return {};
  return Fail(ErrorCode::kUsage, Describe(*unknown, static_cast<size_t>(vocabulary)));
}

}  // namespace

Result<std::unique_ptr<Sequence>> SequenceOf(Request request, const StartedModel& model) {
  const DecoderSpec& spec = model.files.spec;
  PINION_TRY(CheckTask(request, model));
  PINION_TRY(CheckTokens(request, spec.vocabulary));
  auto sequence = std::make_unique<Sequence>();
  sequence->id = request.id;
  sequence->prompt_tokens = request.prompt_ids.size();
  sequence->tokens = std::move(request.prompt_ids);
  sequence->score = request.score || request.pool;
  sequence->pool = request.pool;
  sequence->whole = spec.bidirectional;
  sequence->types = std::move(request.types);
  sequence->priority = request.priority;
  sequence->group = request.group;
  sequence->before_first = HashSalt(request.cache_salt);
  sequence->cache_salt = std::move(request.cache_salt);
  const bool replaces = !request.params.eos_ids.empty() && !request.grammar;
  sequence->eos_ids = replaces ? request.params.eos_ids : spec.eos_ids;
  sequence->arrived_ns = NowNs();
  sequence->params = std::move(request.params);
  return sequence;
}

}  // namespace pinion
