#include "engine/decoder/attention_plan.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "engine/decoder/shared_runs.h"
#include "kernels/kernels.h"

namespace pinion {
namespace {

// Below this many tokens a part costs more in merging and synchronising than it saves: 256 tokens
// of one 64-wide bf16 head are 64 KiB, some 2 us of reading.
constexpr size_t kMinPartTokens = 256;

size_t TileQueries(const HeadGroup& group) { return kernels::kAttentionRows / group.q_heads; }

class Builder {
 public:
  Builder(AttentionPlan& plan, const StepBatch& batch, const HeadShare& heads, size_t block_tokens,
          const Reach& reach, std::span<const size_t> tables)
      : plan_(plan),
        batch_(batch),
        heads_(heads),
        block_tokens_(block_tokens),
        reach_(reach),
        tables_(tables) {}

  void Build(size_t threads) {
    CollectRuns();
    if (threads > 1) {
      uint64_t cost = 0;
      ForTiles([&](const Tile& tile) { cost += Cost(tile); });
      // Items differ in length; four per thread let threads finish at nearly the same time.
      most_cost_ = cost / (4 * threads) + 1;
    }
    ForTiles([this](const Tile& tile) { CutTile(tile); });
    JoinPieces();
  }

 private:
  // Query tokens that read the same cached tokens, each as much of [begin, end) as it may see.
  struct Run {
    uint32_t slice, first_query, queries;
    size_t begin, end;
    bool alone;  // there is no other run for these query tokens
  };
  // The query tokens of a run that one kernel call takes, and the range that they see together.
  struct Tile {
    const Run& run;
    uint32_t group, first_query, queries;
    size_t begin, end;
  };
  static uint64_t Cost(const Tile& tile) { return tile.queries * (tile.end - tile.begin); }

  // A partial result of one query token, to be merged with others.
  struct Piece {
    uint32_t group, row;
    PartSource source;
  };

  // The rows of a slice that see everything within reach: those before the first that chooses.
  size_t Planned(const StepBatch::Slice& slice) const {
    size_t rows = 0;
    while (rows < slice.rows && !reach_.Chooses(slice.first_position + rows)) ++rows;
    return rows;
  }

  // What hides tokens hides different ones in each sequence, so nothing can be shared.
  bool MayShare(const StepBatch::Slice& slice) const {
    return slice.rows == 1 && reach_.First(slice.first_position) == 0 && reach_.ahead == 0;
  }

  void CollectRuns() {
    std::vector<uint32_t> decoding;
    for (uint32_t s = 0; s < batch_.slices.size(); ++s) {
      const auto& slice = batch_.slices[s];
      const size_t rows = Planned(slice);
      if (rows == 0) continue;
      if (MayShare(slice)) {
        decoding.push_back(s);
        continue;
      }
      AddRun(s, 0, slice.first_position + rows, true);
      for (size_t row = 0; row < rows; ++row) AddQuery(slice, row);
    }
    FindSharedRuns(batch_, decoding, block_tokens_, tables_, [&](const SharedRun& shared) {
      const uint32_t first = shared.slices.front();
      const bool alone = shared.slices.size() == 1 && shared.begin == 0;
      AddRun(first, shared.begin, shared.end, alone);
      for (const uint32_t s : shared.slices) AddQuery(batch_.slices[s], 0);
      plan_.shared_tokens += (shared.slices.size() - 1) * (shared.end - shared.begin);
    });
  }

  void AddRun(uint32_t slice, size_t begin, size_t end, bool alone) {
    runs_.push_back({slice, static_cast<uint32_t>(plan_.queries.size()), 0, begin, end, alone});
  }
  void AddQuery(const StepBatch::Slice& slice, size_t row) {
    const size_t last = slice.first_position + slice.rows - 1;
    const size_t position = reach_.ahead == Reach::kWholeSequence
                                ? last
                                : slice.first_position + row + static_cast<size_t>(reach_.ahead);
    plan_.queries.push_back(
        {static_cast<uint32_t>(slice.first_row + row), static_cast<uint32_t>(position)});
    ++runs_.back().queries;
  }

  template <typename F>
  void ForTiles(F f) const {
    for (const Run& run : runs_)
      for (uint32_t group = 0; group < heads_.groups.size(); ++group) {
        const auto most = static_cast<uint32_t>(TileQueries(heads_.groups[group]));
        for (uint32_t query = 0; query < run.queries;) {
          const uint32_t count = std::min(most, InOneChunk(run, query));
          f(MakeTile(run, group, run.first_query + query, count));
          query += count;
        }
      }
  }

  // How many of a run's query tokens from `query` on are in the same chunk. Those of a shared run
  // all are in the first one.
  uint32_t InOneChunk(const Run& run, uint32_t query) const {
    const uint32_t left = run.queries - query;
    if (reach_.chunk == 0) return left;
    const auto chunk = static_cast<uint32_t>(reach_.chunk);
    const uint32_t position = plan_.queries[run.first_query + query].position;
    return MayShare(batch_.slices[run.slice]) ? left : std::min(left, chunk - position % chunk);
  }

  Tile MakeTile(const Run& run, uint32_t group, uint32_t first_query, uint32_t queries) const {
    // Within one sequence positions ascend: the first query's window begins first, the last query
    // sees furthest. The queries of a shared run all lie behind it, and none of it is hidden.
    const size_t hidden = reach_.First(plan_.queries[first_query].position);
    const size_t last_end = plan_.queries[first_query + queries - 1].position + size_t{1};
    return {run,
            group,
            first_query,
            queries,
            std::max(run.begin, hidden / block_tokens_ * block_tokens_),
            std::min(run.end, last_end)};
  }

  void CutTile(const Tile& tile) {
    const size_t tokens = tile.end - tile.begin, wanted = (Cost(tile) - 1) / most_cost_ + 1;
    const size_t cuts = std::clamp<size_t>(tokens / kMinPartTokens, 1, wanted);
    const size_t step = kernels::RoundUp((tokens + cuts - 1) / cuts, block_tokens_);
    const bool whole = tile.run.alone && step >= tokens;
    const auto first_part = static_cast<uint32_t>(plan_.parts);
    for (size_t at = tile.begin; at < tile.end; at += step) {
      plan_.items.push_back({tile.run.slice, tile.group, tile.first_query, tile.queries,
                             static_cast<uint32_t>(at),
                             static_cast<uint32_t>(std::min(at + step, tile.end)),
                             whole ? -1 : static_cast<int32_t>(plan_.parts++)});
    }
    if (!whole) Join(tile, first_part, static_cast<uint32_t>(plan_.parts) - first_part);
  }

  void Join(const Tile& tile, uint32_t first_part, uint32_t parts) {
    if (tile.run.alone)
      return JoinTile(tile.group, plan_.queries[tile.first_query].row, tile.queries, first_part,
                      parts);
    for (uint32_t i = 0; i < tile.queries; ++i)
      for (uint32_t part = first_part; part < first_part + parts; ++part)
        pieces_.push_back({tile.group, plan_.queries[tile.first_query + i].row, {part, i}});
  }

  void JoinTile(uint32_t group, uint32_t row, uint32_t rows, uint32_t first_part, uint32_t parts) {
    plan_.joins.push_back({group, row, rows, static_cast<uint32_t>(plan_.sources.size()), parts});
    for (uint32_t i = 0; i < parts; ++i) plan_.sources.push_back({first_part + i, 0});
  }

  // Rows that took part in shared runs: one join each.
  void JoinPieces() {
    std::stable_sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) {
      return std::tie(a.group, a.row) < std::tie(b.group, b.row);
    });
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& piece = pieces_[i];
      const bool first =
          i == 0 || pieces_[i - 1].group != piece.group || pieces_[i - 1].row != piece.row;
      if (first)
        plan_.joins.push_back(
            {piece.group, piece.row, 1, static_cast<uint32_t>(plan_.sources.size()), 0});
      plan_.sources.push_back(piece.source);
      ++plan_.joins.back().sources;
    }
  }

  AttentionPlan& plan_;
  const StepBatch& batch_;
  const HeadShare& heads_;
  const size_t block_tokens_;
  const Reach reach_;
  const std::span<const size_t> tables_;
  uint64_t most_cost_ = std::numeric_limits<uint64_t>::max();  // of an item
  std::vector<Run> runs_;
  std::vector<Piece> pieces_;
};

}  // namespace

void AttentionPlan::Build(const StepBatch& batch, const HeadShare& heads, size_t threads,
                          size_t block_tokens, const Reach& reach, std::span<const size_t> tables) {
  queries.clear();
  items.clear();
  joins.clear();
  sources.clear();
  parts = 0;
  shared_tokens = 0;
  Builder(*this, batch, heads, block_tokens, reach, tables).Build(threads);
  const auto cost = [](const AttentionItem& item) {
    return uint64_t{item.queries} * (item.context_end - item.context_begin);
  };
  std::stable_sort(items.begin(), items.end(), [&](const AttentionItem& a, const AttentionItem& b) {
    return cost(a) > cost(b);
  });
}

void AttentionPlans::Share(std::span<const AttendingLayer> layers) {
  kinds_.clear();
  plan_of_layer_.clear();
  for (const AttendingLayer& layer : layers) {
    auto kind = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& each) {
      return each.first.reach == layer.reach && each.first.heads->groups == layer.heads->groups;
    });
    if (kind == kinds_.end()) kind = kinds_.insert(kind, {layer, {}});
    std::vector<size_t>& tables = kind->tables;
    if (std::find(tables.begin(), tables.end(), layer.table) == tables.end())
      tables.push_back(layer.table);
    plan_of_layer_.resize(layer.layer + 1);
    plan_of_layer_.back() = static_cast<size_t>(kind - kinds_.begin());
  }
  plans_.resize(kinds_.size());
}

void AttentionPlans::Build(const StepBatch& batch, size_t threads, size_t block_tokens) {
  for (size_t i = 0; i < plans_.size(); ++i)
    plans_[i].Build(batch, *kinds_[i].first.heads, threads, block_tokens, kinds_[i].first.reach,
                    kinds_[i].tables);
}

size_t AttentionPlans::parts() const {
  size_t most = 0;
  for (const AttentionPlan& plan : plans_) most = std::max(most, plan.parts);
  return most;
}

}  // namespace pinion
