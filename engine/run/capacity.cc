#include "engine/run/capacity.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "engine/base/strings.h"
#include "engine/decoder/state_cache.h"
#include "engine/decoder/workspace.h"
#include "engine/kv/table_blocks.h"
#include "engine/spec/kv_tables.h"
#include "engine/spec/stage.h"
#include "engine/weights/weights.h"

namespace pinion {
namespace {

// With neither --kv-cache-space nor --max-model-len: a cache with room for less context than this
// is of no use. A model's own length is lowered to the cache, a --max-model-len is not.
constexpr size_t kLeastTokens = 2048;

// The blocks that --kv-cache-space holds, else those of the smallest useful cache.
size_t LeastBlocks(const std::vector<RankNeeds>& needs, const EngineOptions& options,
                   size_t model_length) {
  if (options.kv_cache_bytes) return *options.kv_cache_bytes / LargestBlockBytes(needs);
  if (options.max_model_len) return BlocksOfSequence(needs, options, model_length);
  return BlocksOfSequence(needs, options, std::min(model_length, kLeastTokens));
}

// More blocks than these would never be used at once. Pages that were used before are warm.
size_t MostUsefulBlocks(const std::vector<RankNeeds>& needs, const EngineOptions& options,
                        size_t model_length) {
  const auto sequences = static_cast<size_t>(options.max_num_seqs);
  const size_t most = BlocksOfSequence(needs, options, model_length) * sequences;
  const auto step = static_cast<size_t>(options.max_num_batched_tokens);
  const auto block_tokens = static_cast<size_t>(options.block_size);
  const size_t of_step = needs[0].reaches.size() * ((step + block_tokens - 1) / block_tokens);
  // Every sequence of a step may leave its last block in part unused.
  if (needs[0].one_step) return std::min(most, of_step + sequences);
  const bool limited = std::any_of(needs[0].reaches.begin(), needs[0].reaches.end(),
                                   [](const Reach& reach) { return reach.limited(); });
  return limited ? most + of_step : most;  // a step's tokens stay until it ends
}

uint64_t LargestState(const std::vector<RankNeeds>& needs) {
  uint64_t largest = 0;
  for (const RankNeeds& rank : needs) largest = std::max(largest, rank.state);
  return largest;
}

uint64_t StatesOfAllRanks(const std::vector<RankNeeds>& needs) {
  uint64_t all = 0;
  for (const RankNeeds& rank : needs) all += rank.state;
  return all;
}

std::string Sum(uint64_t weights, uint64_t workspace, uint64_t kv) {
  return StrCat("weights ", FormatBytes(weights), " + workspace ", FormatBytes(workspace), " + KV ",
                FormatBytes(kv), " = ", FormatBytes(weights + workspace + kv));
}

std::string ForFrontEnd(const EngineOptions& options) {
  if (options.front_end_bytes == 0) return "";
  return StrCat(", of which the front end may take ", FormatBytes(options.front_end_bytes));
}

// The free memory of a node, or else all that is installed there; nullopt if neither is known.
std::optional<uint64_t> NodeBytes(int id, const Machine& machine, const Budget& budget) {
  const auto free = budget.node_available_bytes.find(id);
  if (free != budget.node_available_bytes.end()) return free->second;
  for (const NumaNode& node : machine.nodes)
    if (node.id == id && node.memory_bytes > 0) return node.memory_bytes;
  return std::nullopt;
}

// `fixed` is the memory needed whatever the size of the KV cache.
std::string Suggestion(uint64_t fixed, uint64_t limit, size_t ranks, const EngineOptions& options) {
  const uint64_t left = fixed < limit ? limit - fixed : 0;
  const uint64_t mib_per_rank = (left / ranks) >> 20;
  if (mib_per_rank > 0 && options.kv_cache_bytes)
    return StrCat("; --kv-cache-space of at most ", mib_per_rank, " MiB per rank would fit");
  return "; use a smaller model or dtype, a lower --max-num-batched-tokens, or a machine with more "
         "memory";
}

// The ranks that have memory on one NUMA node, and how much.
struct NodeLoad {
  std::vector<size_t> ranks;
  uint64_t fixed = 0, kv = 0, span = 0;
  double parts = 0;  // ranks, each counted by its part on the node
  uint64_t all() const { return fixed + kv; }
};

// Ways out of a node that is too small, the one that keeps most first.
std::string NodeSuggestion(const NodeLoad& load, uint64_t available, const EngineOptions& options,
                           size_t nodes) {
  std::vector<std::string> ways;
  // Ranks on more nodes use their memory as well.
  const size_t tensor = nodes / static_cast<size_t>(options.pipeline_parallel);
  if (tensor > static_cast<size_t>(options.tensor_parallel)) ways.push_back(StrCat("-tp ", tensor));
  const bool wide = options.kv_cache_dtype.find('8') == std::string::npos;
  // Half of 16 bits, and a scale for each head and token.
  if (wide && load.fixed + load.kv * 9 / 16 <= available)
    ways.emplace_back("--kv-cache-dtype int8");
  const uint64_t least = load.fixed + load.span;
  const uint64_t left = least < available ? available - least : 0;
  const auto mib = static_cast<uint64_t>(static_cast<double>(left) / load.parts) >> 20;
  if (options.kv_cache_bytes && mib > 0)
    ways.push_back(StrCat("--kv-cache-space ", mib, "MiB (per rank)"));
  if (options.memory_policy != "preferred" && nodes > 1)
    ways.emplace_back("--memory-policy preferred (part of it on other nodes)");
  if (ways.empty())
    ways.emplace_back(
        "a smaller model or dtype, a lower --max-num-batched-tokens, or a node with more "
        "memory");
  return StrCat("; use ", Join(ways, ", or "));
}

// The share of a rank's memory on each of its nodes: its threads touch the pages, each about as
// many as the next.
std::map<int, double> SharesOf(const RankPlan& rank, const Machine& machine) {
  std::map<int, size_t> threads;
  for (const int cpu : rank.cpus) ++threads[machine.Find(cpu)->node];
  if (threads.empty())  // they are not pinned
    for (const int node : rank.nodes) threads[node] = 1;
  const size_t all = rank.cpus.empty() ? rank.nodes.size() : rank.cpus.size();
  std::map<int, double> shares;
  for (const auto& [node, count] : threads)
    shares[node] = static_cast<double>(count) / static_cast<double>(all);
  return shares;
}

// Of the buffers that a stage has for hidden states in transit; they are counted with its first
// rank in a process.
uint64_t HandoverBytes(const DecoderSpec& spec, const DecoderOptions& decoder,
                       const StagePlaces& places, size_t rank) {
  const size_t process = rank / places.ranks(), within = rank % places.ranks();
  const auto each = static_cast<size_t>(places.tensor());
  if (within % each != 0) return 0;
  return places.BuffersOf(process, within / each).all() * decoder.max_rows * HandoverFloats(spec) *
         sizeof(float);
}

// Nodes of memory alone have no ranks.
size_t NodesWithCpus(const Machine& machine) {
  return static_cast<size_t>(
      std::count_if(machine.nodes.begin(), machine.nodes.end(),
                    [](const NumaNode& node) { return !node.cpus.empty(); }));
}

std::string Describe(const NodeLoad& load) {
  std::vector<std::string> ranks;
  for (const size_t rank : load.ranks) ranks.push_back(StrCat(rank));
  return StrCat(ranks.size() == 1 ? "rank " : "ranks ", Join(ranks, ", "),
                ranks.size() == 1 ? " needs " : " need ");
}

}  // namespace

size_t LongestServed(const DecoderSpec& spec, const EngineOptions& options, size_t length) {
  if (!spec.bidirectional) return length;
  return std::min(length, static_cast<size_t>(options.max_num_batched_tokens));
}

uint64_t LeftByFrontEnd(const EngineOptions& options, uint64_t available_bytes) {
  return available_bytes - std::min(available_bytes, options.front_end_bytes);
}

std::vector<RankNeeds> CountNeeds(const DecoderSpec& spec, const DecoderOptions& decoder,
                                  const Partition& partition, const StagePlaces& places) {
  const std::vector<Reach> reaches = KvReaches(spec);
  const std::vector<DecoderSpec> stages = StageSpecs(spec, decoder.formats, partition.stages);
  const RankShares shares = decoder.SharesOf(partition.tensor);
  std::vector<RankNeeds> needs;
  for (int rank = 0; rank < partition.ranks(); ++rank) {
    const DecoderSpec& stage = stages[static_cast<size_t>(partition.StageOfRank(rank))];
    const int within = rank % partition.tensor;
    const Shard shard = MakeShard(stage, shares, within);
    needs.push_back(
        {ShardWeightBytes(stage, decoder.formats, decoder.moe_prepack, shares, within),
         WorkspaceBytes(stage, decoder, partition.tensor, within) +
             HandoverBytes(spec, decoder, places, static_cast<size_t>(rank)),
         KvLayout::Of(stage, shard, decoder.cached(), decoder.block_tokens, decoder.formats.dtype),
         StateCache::BytesPerSequence(stage, shard), spec.bidirectional, reaches});
  }
  return needs;
}

std::vector<RankNeeds> CountNeeds(const DecoderSpec& spec, const DecoderOptions& decoder,
                                  const Partition& partition) {
  return CountNeeds(spec, decoder, partition, StagePlaces::Of(partition, 1).value());
}

void LeaveOutPacked(uint64_t bytes, std::vector<RankNeeds>& needs) {
  for (RankNeeds& rank : needs) {
    const uint64_t part = std::min(bytes, rank.weights);
    rank.weights -= part;
    bytes -= part;
  }
}

Result<size_t> ResolveModelLength(const DecoderSpec& spec, const EngineOptions& options) {
  if (!options.max_model_len) return static_cast<size_t>(spec.max_positions);
  if (*options.max_model_len > spec.max_positions)
    return Fail(ErrorCode::kUsage,
                StrCat("--max-model-len ", *options.max_model_len, " exceeds the ",
                       spec.max_positions, " positions that the model supports"));
  return static_cast<size_t>(*options.max_model_len);
}

uint64_t MostKvBytes(const std::vector<RankNeeds>& needs, const EngineOptions& options,
                     const Machine& machine, const Budget& budget, const Plan& plan) {
  constexpr auto kUnlimited = std::numeric_limits<uint64_t>::max();
  if (options.memory_policy != "strict") return kUnlimited;
  std::map<int, double> fixed_of, kv_of;  // by node; of every byte of KV, the part there
  double all = 0;
  for (const RankNeeds& rank : needs)
    all += static_cast<double>(rank.kv.block_bytes() + rank.state);
  for (size_t rank = 0; rank < needs.size(); ++rank) {
    const RankNeeds& need = needs[rank];
    for (const auto& [node, share] : SharesOf(plan.ranks[rank], machine)) {
      fixed_of[node] += share * static_cast<double>(need.weights + need.workspace);
      kv_of[node] += share * static_cast<double>(need.kv.block_bytes() + need.state) / all;
    }
  }
  uint64_t most = kUnlimited;
  for (const auto& [node, part] : kv_of) {
    const auto available = NodeBytes(node, machine, budget);
    if (!available || !(part > 0)) continue;
    const double left = std::max(0.0, static_cast<double>(*available) - fixed_of[node]);
    most = std::min(most, static_cast<uint64_t>(left / part));
  }
  return most;
}

Status CheckCapacity(const std::vector<RankNeeds>& needs, const EngineOptions& options,
                     size_t model_length, const Machine& machine, const Budget& budget,
                     const Plan& plan) {
  const size_t blocks = LeastBlocks(needs, options, model_length);
  uint64_t weights = 0, workspace = 0, kv = 0, spans = 0;
  std::map<int, NodeLoad> per_node;
  for (size_t rank = 0; rank < needs.size(); ++rank) {
    // --kv-cache-space is for the states too; else there must be room for one sequence's.
    const uint64_t state = options.kv_cache_bytes ? 0 : needs[rank].state;
    const uint64_t rank_kv = needs[rank].kv.StorageBytes(blocks) + state;
    spans += needs[rank].kv.SpanBytes(blocks);
    weights += needs[rank].weights;
    workspace += needs[rank].workspace;
    kv += rank_kv;
    for (const auto& [node, share] : SharesOf(plan.ranks[rank], machine)) {
      const auto part = [share = share](uint64_t bytes) {
        return static_cast<uint64_t>(static_cast<double>(bytes) * share);
      };
      NodeLoad& load = per_node[node];
      load.ranks.push_back(rank);
      load.fixed += part(needs[rank].weights + needs[rank].workspace);
      load.kv += part(rank_kv);
      load.span += part(needs[rank].kv.SpanBytes(blocks));
      load.parts += share;
    }
  }
  const uint64_t free = LeftByFrontEnd(options, budget.memory_available_bytes);
  if (weights + workspace + kv > free)
    return Fail(ErrorCode::kExhausted,
                StrCat("'", options.model, "' needs ", Sum(weights, workspace, kv), ", but ",
                       FormatBytes(budget.memory_available_bytes), " of memory is free",
                       ForFrontEnd(options),
                       Suggestion(weights + workspace + spans, free, needs.size(), options)));
  if (options.memory_policy == "preferred" || options.memory_policy == "interleave") return {};
  for (const auto& [id, load] : per_node) {
    const auto available = NodeBytes(id, machine, budget);
    if (!available || load.all() <= *available) continue;
    return Fail(
        ErrorCode::kExhausted,
        StrCat(Describe(load), FormatBytes(load.all()), " on NUMA node ", id, ", which has ",
               FormatBytes(*available), " free (", Sum(weights, workspace, kv), " over all ranks)",
               NodeSuggestion(load, *available, options, NodesWithCpus(machine))));
  }
  return {};
}

uint64_t LargestBlockBytes(const std::vector<RankNeeds>& needs) {
  uint64_t largest = 1;
  for (const RankNeeds& rank : needs) largest = std::max(largest, rank.kv.block_bytes());
  return largest;
}

size_t BlocksOfSequence(const std::vector<RankNeeds>& needs, const EngineOptions& options,
                        size_t tokens) {
  return MostBlocks(needs[0].reaches, tokens, 1, static_cast<size_t>(options.block_size));
}

size_t KvTokens(const std::vector<RankNeeds>& needs, const EngineOptions& options, size_t blocks,
                size_t model_length) {
  if (needs[0].reaches.size() == 1 && !needs[0].reaches[0].limited())
    return blocks * static_cast<size_t>(options.block_size);
  const size_t of_one = std::max<size_t>(1, BlocksOfSequence(needs, options, model_length));
  return static_cast<size_t>(static_cast<double>(blocks) / static_cast<double>(of_one) *
                             static_cast<double>(model_length));
}

StatePlaces SizeStates(const std::vector<RankNeeds>& needs, const EngineOptions& options,
                       uint64_t available_bytes) {
  const auto most = static_cast<size_t>(options.max_num_seqs);
  if (LargestState(needs) == 0) return {most, options.prefix_caching ? most : 0};
  const uint64_t fitting = options.kv_cache_bytes
                               ? *options.kv_cache_bytes / 2 / LargestState(needs)
                               : available_bytes / 4 / StatesOfAllRanks(needs);
  const size_t for_prefixes = options.prefix_caching ? fitting / 4 : 0;
  const size_t running = std::clamp<size_t>(fitting - for_prefixes, 1, most);
  return {running,
          options.prefix_caching && fitting > running ? std::min(fitting - running, most) : 0};
}

Result<size_t> SizeKv(const std::vector<RankNeeds>& needs, const EngineOptions& options,
                      size_t model_length, uint64_t available_bytes) {
  const size_t places = SizeStates(needs, options, available_bytes).all();
  if (!options.kv_cache_bytes) {
    available_bytes -= std::min(available_bytes, places * StatesOfAllRanks(needs));
    uint64_t per_block_all = 0;
    for (const RankNeeds& rank : needs) per_block_all += rank.kv.block_bytes();
    const size_t useful = MostUsefulBlocks(needs, options, model_length);
    per_block_all = std::max<uint64_t>(1, per_block_all);
    // More than half, if one sequence of --max-model-len needs it.
    const size_t asked = options.max_model_len ? BlocksOfSequence(needs, options, model_length) : 1;
    const size_t least = std::clamp<size_t>(available_bytes / per_block_all, 1, asked);
    return std::clamp<size_t>(available_bytes / 2 / per_block_all, least, useful);
  }
  const uint64_t largest = LargestBlockBytes(needs);
  const uint64_t states = places * LargestState(needs);
  const size_t blocks =
      (*options.kv_cache_bytes - std::min(*options.kv_cache_bytes, states)) / largest;
  if (blocks < needs[0].reaches.size())
    return Fail(
        ErrorCode::kUsage,
        StrCat("--kv-cache-space of ", FormatBytes(*options.kv_cache_bytes), " does not hold ",
               needs[0].reaches.size() == 1 ? std::string("one block")
                                            : StrCat("the ", needs[0].reaches.size(), " blocks"),
               " of ", options.block_size, " tokens that a sequence needs (", FormatBytes(largest),
               " per rank and block)",
               states > 0 ? StrCat(" beside ", places, " states of sequences (",
                                   FormatBytes(states), " per rank)")
                          : ""));
  return blocks;
}

}  // namespace pinion
