#include "harness/topo/model_fit.h"

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "engine/kv/table_blocks.h"
#include "engine/run/capacity.h"
#include "engine/run/replicas.h"
#include "engine/run/start.h"
#include "engine/spec/attention_spec.h"
#include "engine/spec/kv_tables.h"

namespace pinion::harness {
namespace {

// Fills in the cache that an engine would make of so much memory.
Status FillCache(const std::vector<RankNeeds>& needs, const EngineOptions& options,
                 uint64_t available_bytes, ModelFit& fit) {
  PINION_ASSIGN(const size_t blocks, SizeKv(needs, options, fit.sequence_tokens, available_bytes));
  const StatePlaces places = SizeStates(needs, options, available_bytes);
  for (const RankNeeds& rank : needs)
    fit.cache_bytes += blocks * rank.kv.block_bytes() + places.all() * rank.state;
  const size_t of_one = std::max<size_t>(1, BlocksOfSequence(needs, options, fit.sequence_tokens));
  fit.sequences = std::min(blocks / of_one, places.running);  // the latter at most --max-num-seqs
  if (needs[0].one_step)
    fit.sequences = std::min(
        fit.sequences, static_cast<size_t>(options.max_num_batched_tokens) / fit.sequence_tokens);
  fit.longest_tokens = LongestIn(blocks, needs[0].reaches, fit.sequence_tokens,
                                 static_cast<size_t>(options.block_size));
  return {};
}

std::string KindText(const CacheKind& kind) {
  std::string text = StrCat(kind.name, ": ", Counted(kind.layers, "layer"), " · ");
  if (kind.token_bytes == 0)
    return StrCat(text, FormatBytes(kind.sequence_bytes), " per sequence of any length");
  text += StrCat(FormatBytes(kind.token_bytes), " per token");
  if (kind.most_tokens > 0) text += StrCat(", at most ", kind.most_tokens, " tokens");
  return StrCat(text, " · ", FormatBytes(kind.sequence_bytes), " per sequence");
}

std::string CopiesText(const ModelFit& fit) {
  if (fit.weight_copies == fit.replicas) return "a copy of the weights each";
  return fit.weight_copies == 1 ? "one copy of the weights for all"
                                : StrCat(fit.weight_copies, " copies of the weights, shared");
}

std::string RoomText(const ModelFit& fit) {
  std::string text = StrCat(Counted(fit.sequences, "sequence"), " of ", fit.sequence_tokens,
                            " tokens in ", FormatBytes(fit.cache_bytes));
  if (fit.longest_tokens < fit.sequence_tokens)
    return StrCat(text, ", which has room for one of ", fit.longest_tokens,
                  "; raise --kv-cache-space or lower --max-model-len");
  text += StrCat(", ", FormatBytes(fit.held_bytes_per_sequence), " each on all ranks");
  return fit.replicas == 1 ? text : StrCat(text, ", in each engine");
}

// Whether all engines fit, and the share of memory of one of them: its cache, if there are several.
Status ShareMemory(const EngineOptions& options, const PlannedModel& model, const Machine& machine,
                   const Budget& budget, const Plan& plan, const std::vector<RankNeeds>& needs,
                   ModelFit& fit, EngineOptions& one) {
  if (fit.replicas == 1)
    return CheckCapacity(needs, options, fit.sequence_tokens, machine, budget, plan);
  PINION_ASSIGN(const MemoryOfReplicas memory, DivideMemory(options, fit.replicas, model, machine,
                                                            budget, plan, PageSizes::Here()));
  fit.weight_copies = *std::max_element(memory.copies.begin(), memory.copies.end()) + 1;
  one.kv_cache_bytes = memory.kv_cache_bytes;
  return {};
}

}  // namespace

Result<ModelFit> FitModel(const EngineOptions& options, int replicas, const Machine& machine,
                          const Budget& budget, const Plan& plan) {
  PINION_ASSIGN(const PlannedModel model, PlanModel(options));
  PINION_ASSIGN(const DecoderOptions decoder, DecoderOptionsFor(options, model.formats));
  PINION_ASSIGN(const std::vector<RankNeeds> needs, NeedsFor(options, model));
  const DecoderSpec& spec = model.spec;
  PINION_ASSIGN(const size_t length, ResolveModelLength(spec, options));
  ModelFit fit;
  fit.name = options.model;
  fit.replicas = replicas;
  fit.architecture = spec.architecture;
  fit.kv_dtype = kernels::Name(decoder.cached());
  fit.sequence_tokens = LongestServed(spec, options, length);
  fit.kinds = CacheKinds(spec, decoder.cached(), fit.sequence_tokens);
  // Each stage of an encoder has a place that its layers share.
  const auto places = static_cast<uint64_t>(KeepsOneLayer(spec) ? options.pipeline_parallel : 1);
  for (CacheKind& kind : fit.kinds) {
    kind.token_bytes *= places;
    kind.sequence_bytes *= places;
  }
  fit.kv_bytes_per_token = places * KvBytesPerToken(spec, decoder.cached());
  fit.kv_bytes_per_sequence =
      places * KvBytesOfSequence(spec, decoder.cached(), fit.sequence_tokens);
  fit.state_bytes_per_sequence = StateBytesPerSequence(spec);
  const size_t of_one = BlocksOfSequence(needs, options, fit.sequence_tokens);
  for (const RankNeeds& rank : needs) {
    fit.weight_bytes += rank.weights;
    fit.workspace_bytes += rank.workspace;
    fit.held_bytes_per_sequence += of_one * rank.kv.block_bytes() + rank.state;
  }
  const uint64_t fixed = fit.weight_bytes + fit.workspace_bytes;
  EngineOptions one = options;
  const Status fits = ShareMemory(options, model, machine, budget, plan, needs, fit, one);
  if (!fits) {
    fit.refusal = fits.error().message;
    return fit;
  }
  const uint64_t free = budget.memory_available_bytes;
  const uint64_t most = MostKvBytes(needs, one, machine, budget, plan);
  PINION_TRY(FillCache(needs, one, std::min(free - std::min(free, fixed), most), fit));
  return fit;
}

Json ToJson(const ModelFit& fit) {
  Json kinds = Json::MakeArray();
  for (const CacheKind& kind : fit.kinds) {
    Json item;
    item.Set("name", kind.name);
    item.Set("layers", static_cast<uint64_t>(kind.layers));
    item.Set("most_tokens", kind.most_tokens > 0 ? Json(kind.most_tokens) : Json());
    item.Set("bytes_per_token", kind.token_bytes);
    item.Set("bytes_per_sequence", kind.sequence_bytes);
    kinds.Append(std::move(item));
  }
  return Json::Object{{"name", fit.name},
                      {"architecture", fit.architecture},
                      {"replicas", fit.replicas},
                      {"weight_copies", fit.weight_copies},
                      {"weight_bytes", fit.weight_bytes},
                      {"workspace_bytes", fit.workspace_bytes},
                      {"kv_dtype", fit.kv_dtype},
                      {"sequence_tokens", static_cast<uint64_t>(fit.sequence_tokens)},
                      {"kv_bytes_per_token", fit.kv_bytes_per_token},
                      {"kv_bytes_per_sequence", fit.kv_bytes_per_sequence},
                      {"state_bytes_per_sequence", fit.state_bytes_per_sequence},
                      {"held_bytes_per_sequence", fit.held_bytes_per_sequence},
                      {"kinds", std::move(kinds)},
                      {"cache_bytes", fit.cache_bytes},
                      {"sequences", static_cast<uint64_t>(fit.sequences)},
                      {"longest_tokens", static_cast<uint64_t>(fit.longest_tokens)},
                      {"refusal", fit.refusal.empty() ? Json() : Json(fit.refusal)}};
}

std::vector<std::pair<std::string, std::string>> Describe(const ModelFit& fit) {
  std::vector<std::pair<std::string, std::string>> lines;
  lines.emplace_back("model", StrCat(fit.name, " · ", fit.architecture, " · weights ",
                                     FormatBytes(fit.weight_bytes), " · workspace ",
                                     FormatBytes(fit.workspace_bytes)));
  if (fit.replicas > 1)
    lines.emplace_back("engines", StrCat(fit.replicas, ", with ", CopiesText(fit)));
  const uint64_t sequence = fit.kv_bytes_per_sequence + fit.state_bytes_per_sequence;
  lines.emplace_back(
      "cache", StrCat(fit.kv_dtype, " · ", FormatBytes(fit.kv_bytes_per_token), " per token · ",
                      FormatBytes(sequence), " per sequence of ", fit.sequence_tokens, " tokens"));
  for (const CacheKind& kind : fit.kinds) lines.emplace_back("", KindText(kind));
  if (fit.refusal.empty()) lines.emplace_back("room", RoomText(fit));
  return lines;
}

}  // namespace pinion::harness
