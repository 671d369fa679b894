#include "engine/run/kv_stage.h"

#include <algorithm>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/kv/table_blocks.h"
#include "engine/run/join_processes.h"

namespace pinion {
namespace {

// Lowers the model's own length to the cache's capacity; a --max-model-len that does not fit is an
// error instead.
Status FitModelLength(StartedModel& model) {
  EngineInfo& info = model.info;
  const size_t capacity =
      LongestIn(info.blocks, info.kv_reaches, info.max_model_len, info.block_tokens);
  if (capacity == info.max_model_len) return {};
  if (model.options.max_model_len)
    return Fail(ErrorCode::kExhausted,
                StrCat("the KV cache holds ", capacity, " tokens, fewer than --max-model-len ",
                       info.max_model_len, "; raise --kv-cache-space or lower --max-model-len"));
  LogWarning(StrCat("the KV cache holds ", capacity,
                    " tokens, so sequences are limited to that instead of the model's ",
                    info.max_model_len));
  info.max_model_len = capacity;
  return {};
}

// Places for states: lowers --max-num-seqs to the size of their memory.
void FitSequences(StartedModel& model, const StatePlaces& places, uint64_t state_bytes) {
  const size_t sequences = places.running;
  const auto wanted = static_cast<size_t>(model.options.max_num_seqs);
  if (sequences < wanted)
    LogWarning(StrCat("the cache holds the states of ", sequences,
                      " sequences, so no more run at once instead of --max-num-seqs ", wanted,
                      "; raise --kv-cache-space for more"));
  model.options.max_num_seqs = static_cast<int>(sequences);
  LogInfo(StrCat("recurrent layers have a state of ", FormatBytes(state_bytes),
                 " for each sequence, ", FormatBytes(state_bytes * sequences), " for ", sequences,
                 ", and ", places.kept, " more for cached prefixes"));
  if (places.kept > 0 || !model.options.prefix_caching) return;
  model.options.prefix_caching = false;
  LogWarning(
      "prefix caching is off: the cache has no room for the states of prefixes; raise "
      "--kv-cache-space");
}

}  // namespace

Status MakeKvCache(StartedModel& model, const std::vector<RankNeeds>& needs, uint64_t available,
                   Stages& stages) {
  EngineInfo& info = model.info;
  const auto blocks = SizeKv(needs, model.options, info.max_model_len, available);
  PINION_TRY(Together(model.world, blocks ? Status{} : Unexpected(blocks.error())));
  info.blocks = *blocks;
  info.kv_reaches = needs[0].reaches;
  StatePlaces places = SizeStates(needs, model.options, available);
  if (model.world) {
    info.blocks = LeastOf(*model.world, info.blocks);
    places = {LeastOf(*model.world, places.running), LeastOf(*model.world, places.kept)};
  }
  PINION_TRY(FitModelLength(model));
  if (const uint64_t state = StateBytesPerSequence(model.files.spec); state > 0)
    FitSequences(model, places, state);
  // Without a front end none is made ready: a batch would pay for memory that it may never use.
  const int burst = model.options.has_frontend ? model.options.max_num_seqs : 0;
  PINION_TRY(Together(model.world,
                      model.executor->AllocateKv({info.blocks, info.max_model_len, places.all(),
                                                  static_cast<size_t>(burst)})));
  info.kv_bytes = model.executor->memory().kv_bytes;
  info.state_bytes = model.executor->memory().state_bytes;
  if (model.world) {
    info.kv_bytes = SumOf(*model.world, info.kv_bytes);
    info.state_bytes = SumOf(*model.world, info.state_bytes);
  }
  if (info.state_bytes > 0) {
    info.states = places.running;
    info.kept_states = places.kept;
  }
  info.kv_tokens = KvTokens(needs, model.options, info.blocks, info.max_model_len);
  const size_t tokens = info.kv_tokens, sequences = tokens / info.max_model_len;
  stages.Done("KV cache",
              StrCat(FormatBytes(info.kv_bytes), " of ", kernels::Name(info.kv_dtype), " for ",
                     tokens, " tokens: ", sequences,
                     sequences == 1 ? " sequence of " : " sequences of ", info.max_model_len));
  return {};
}

}  // namespace pinion
