#include "engine/decoder/attention_items.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "engine/decoder/shared_runs.h"
#include "kernels/kernels.h"

namespace pinion {
namespace {

// Below this many tokens an item costs more in merging and synchronising than it saves: 256 tokens
// of one 64-wide bf16 head are 64 KiB, some 2 us of reading.
constexpr size_t kMinItemTokens = 256;

// Items differ in length; four per thread let threads finish at nearly the same time.
constexpr size_t kItemsPerThread = 4;

class Builder {
 public:
  Builder(std::span<AttentionPlan> plans, const StepBatch& step, std::span<const StepBatch> parts,
          size_t block_tokens, const Reach& reach, std::span<const size_t> tables)
      : plans_(plans),
        step_(step),
        parts_(parts),
        block_tokens_(block_tokens),
        reach_(reach),
        tables_(tables) {
    part_of_row_.reserve(step.tokens.size());
    queries_.reserve(step.tokens.size());
    for (uint32_t part = 0; part < parts.size(); ++part)
      part_of_row_.insert(part_of_row_.end(), parts[part].tokens.size(), part);
  }

  void Build(size_t threads) {
    CollectRuns();
    const std::vector<GroupPlan>& kinds = plans_.front().group_plans;
    if (threads > 1) {
      uint64_t cost = 0;
      for (const GroupPlan& group_plan : kinds)
        ForTiles(group_plan,
                 [&](const Tile& tile) { cost += Cost(tile) * group_plan.groups.size(); });
      most_cost_ = cost / (kItemsPerThread * threads * parts_.front().finer()) + 1;
    }
    for (size_t kind = 0; kind < kinds.size(); ++kind) Cut(kind);
  }

 private:
  using GroupPlan = AttentionPlan::GroupPlan;

  // Query tokens of the step that read the same cached tokens, each as much of [begin, end) as it
  // may see. Their rows ascend.
  struct Run {
    uint32_t first_query, queries;
    size_t begin, end;
    bool alone;  // there is no other run for these query tokens
  };
  // The query tokens of a run that one kernel call would take if the step was not cut, and the
  // range that they see together: however the step is cut, a token's context is divided at the same
  // places. Of the tokens of a shared run, each part takes its own.
  struct Tile {
    const Run& run;
    uint32_t first_query, queries;
    size_t begin, end;
  };
  static uint64_t Cost(const Tile& tile) { return tile.queries * (tile.end - tile.begin); }

  // A query token of the step: its part, its slice there, and its place in the part's plan.
  struct StepQuery {
    uint32_t position, part, slice, place;
  };

  // A partial result of one query token, to be merged with others.
  struct Piece {
    uint32_t part, row;
    SlotToken source;
    auto place() const { return std::pair(part, row); }
  };

  // The rows of a slice that see everything within reach: those before the first that chooses.
  size_t Planned(const StepBatch::Slice& slice) const {
    size_t rows = 0;
    while (rows < slice.rows && !reach_.Chooses(slice.first_position + rows)) ++rows;
    return rows;
  }

  // Each sequence has other tokens hidden, so nothing can be shared.
  bool MayShare(const StepBatch::Slice& slice) const {
    return slice.rows == 1 && reach_.First(slice.first_position) == 0 && reach_.ahead == 0;
  }

  void CollectRuns() {
    std::vector<uint32_t> decoding;
    for (uint32_t s = 0; s < step_.slices.size(); ++s) {
      const auto& slice = step_.slices[s];
      const size_t rows = Planned(slice);
      if (rows == 0) continue;
      if (MayShare(slice)) {
        decoding.push_back(s);
        continue;
      }
      AddRun(0, slice.first_position + rows, true);
      for (size_t row = 0; row < rows; ++row) AddQuery(s, row);
    }
    FindSharedRuns(step_, decoding, block_tokens_, tables_, [&](const SharedRun& shared) {
      AddRun(shared.begin, shared.end, shared.slices.size() == 1 && shared.begin == 0);
      for (const uint32_t s : shared.slices) AddQuery(s, 0);
      CountShared(runs_.back());
    });
  }

  void AddRun(size_t begin, size_t end, bool alone) {
    runs_.push_back({static_cast<uint32_t>(queries_.size()), 0, begin, end, alone});
  }
  void AddQuery(uint32_t s, size_t row) {
    const StepBatch::Slice& slice = step_.slices[s];
    const size_t last = slice.first_position + slice.rows - 1;
    const auto position =
        static_cast<uint32_t>(reach_.ahead == Reach::kWholeSequence
                                  ? last
                                  : slice.first_position + row + static_cast<size_t>(reach_.ahead));
    const size_t step_row = slice.first_row + row;
    const uint32_t part = part_of_row_[step_row];
    const StepBatch::Place& first = parts_[part].place;
    std::vector<QueryToken>& queries = plans_[part].queries;
    queries_.push_back({position, part, static_cast<uint32_t>(s - first.slice),
                        static_cast<uint32_t>(queries.size())});
    queries.push_back({static_cast<uint32_t>(step_row - first.row), position});
    ++runs_.back().queries;
  }

  // Within a part, all but the first of a run's query tokens need not read it.
  void CountShared(const Run& run) {
    for (size_t i = run.first_query + size_t{1}; i < queries_.size(); ++i)
      if (queries_[i].part == queries_[i - 1].part)
        plans_[queries_[i].part].shared_tokens += run.end - run.begin;
  }

  template <typename F>
  void ForTiles(const GroupPlan& group_plan, F f) const {
    const auto most = static_cast<uint32_t>(kernels::kAttentionRows / group_plan.q_heads);
    for (const Run& run : runs_)
      for (uint32_t query = 0; query < run.queries;) {
        const uint32_t count = std::min(most, InOneTile(run, query));
        f(MakeTile(run, run.first_query + query, count));
        query += count;
      }
  }

  // How many of a run's query tokens from `query` on a tile may have: those in the same chunk that
  // no cut of the step can separate, since a part sees nothing that later ones write. Those of a
  // shared run all are in the first chunk, and any cut may lie between them.
  uint32_t InOneTile(const Run& run, uint32_t query) const {
    uint32_t most = run.queries - query;
    if (!run.alone) return most;
    constexpr auto kCut = static_cast<uint32_t>(kCutRows);
    if (parts_.front().is_part) most = std::min(most, kCut - query % kCut);
    if (reach_.chunk == 0) return most;
    const auto chunk = static_cast<uint32_t>(reach_.chunk);
    return std::min(most, chunk - queries_[run.first_query + query].position % chunk);
  }

  Tile MakeTile(const Run& run, uint32_t first_query, uint32_t queries) const {
    // Within one sequence positions ascend: the first query's window begins first, the last query
    // sees furthest. The queries of a shared run all lie behind it, and none of it is hidden.
    const size_t hidden = reach_.First(queries_[first_query].position);
    const size_t last_end = queries_[first_query + queries - 1].position + size_t{1};
    return {run, first_query, queries, std::max(run.begin, hidden / block_tokens_ * block_tokens_),
            std::min(run.end, last_end)};
  }

  void Cut(size_t kind) {
    pieces_.clear();
    ForTiles(plans_.front().group_plans[kind], [&](const Tile& tile) { CutTile(tile, kind); });
    JoinPieces(kind);
    for (AttentionPlan& plan : plans_)
      std::stable_sort(
          plan.group_plans[kind].items.begin(), plan.group_plans[kind].items.end(),
          [](const AttentionItem& a, const AttentionItem& b) { return a.cost() > b.cost(); });
  }

  void CutTile(const Tile& tile, size_t kind) {
    const size_t tokens = tile.end - tile.begin, wanted = (Cost(tile) - 1) / most_cost_ + 1;
    const size_t cuts = std::clamp<size_t>(tokens / kMinItemTokens, 1, wanted);
    const size_t step = kernels::RoundUp((tokens + cuts - 1) / cuts, block_tokens_);
    const uint32_t end = tile.first_query + tile.queries;
    for (uint32_t first = tile.first_query, behind = first; first < end; first = behind) {
      while (behind < end && queries_[behind].part == queries_[first].part) ++behind;
      CutShare(tile, first, behind - first, step, kind);
    }
  }

  // Query tokens of a tile that are of one part. step: the most tokens of an item.
  void CutShare(const Tile& tile, uint32_t first, uint32_t queries, size_t step, size_t kind) {
    const StepQuery& query = queries_[first];
    AttentionPlan& plan = plans_[query.part];
    GroupPlan& group_plan = plan.group_plans[kind];
    const bool whole = tile.run.alone && step >= tile.end - tile.begin;
    AttentionItem item = {query.slice, 0, query.place, queries, 0, 0, -1, tile.queries};
    const uint32_t first_slot = group_plan.slots;
    for (size_t at = tile.begin; at < tile.end; at += step) {
      item.context_begin = static_cast<uint32_t>(at);
      item.context_end = static_cast<uint32_t>(std::min(at + step, tile.end));
      if (!whole) item.slot = static_cast<int32_t>(group_plan.slots++);
      group_plan.items.push_back(item);
    }
    if (whole) return;
    const QueryToken* tokens = plan.queries.data() + query.place;
    if (tile.run.alone) return JoinTile(tokens->row, queries, first_slot, group_plan);
    for (uint32_t i = 0; i < queries; ++i)
      for (uint32_t slot = first_slot; slot < group_plan.slots; ++slot)
        pieces_.push_back({query.part, tokens[i].row, {slot, i}});
  }

  // Slots from the first on: those of the tile.
  void JoinTile(uint32_t row, uint32_t rows, uint32_t first_slot, GroupPlan& group_plan) const {
    group_plan.joins.push_back({0, row, rows, static_cast<uint32_t>(group_plan.sources.size()),
                                group_plan.slots - first_slot});
    for (uint32_t slot = first_slot; slot < group_plan.slots; ++slot)
      group_plan.sources.push_back({slot, 0});
  }

  // Rows that took part in shared runs: one join each.
  void JoinPieces(size_t kind) {
    std::stable_sort(pieces_.begin(), pieces_.end(),
                     [](const Piece& a, const Piece& b) { return a.place() < b.place(); });
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& piece = pieces_[i];
      GroupPlan& group_plan = plans_[piece.part].group_plans[kind];
      if (i == 0 || pieces_[i - 1].place() != piece.place())
        group_plan.joins.push_back(
            {0, piece.row, 1, static_cast<uint32_t>(group_plan.sources.size()), 0});
      group_plan.sources.push_back(piece.source);
      ++group_plan.joins.back().sources;
    }
  }

  const std::span<AttentionPlan> plans_;
  const StepBatch& step_;
  const std::span<const StepBatch> parts_;
  const size_t block_tokens_;
  const Reach reach_;
  const std::span<const size_t> tables_;
  uint64_t most_cost_ = std::numeric_limits<uint64_t>::max();  // of an item
  std::vector<uint32_t> part_of_row_;                          // [rows of the step]
  std::vector<Run> runs_;
  std::vector<StepQuery> queries_;
  std::vector<Piece> pieces_;  // of the groups that are being cut
};

}  // namespace

void MakeItems(std::span<AttentionPlan> plans, const StepBatch& step,
               std::span<const StepBatch> parts, size_t threads, size_t block_tokens,
               const Reach& reach, std::span<const size_t> tables) {
  Builder(plans, step, parts, block_tokens, reach, tables).Build(threads);
}

}  // namespace pinion
