#include "engine/decoder/attention_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/decoder/shared_runs.h"
#include "engine/host/phases.h"
#include "kernels/kernels.h"

namespace pinion {
namespace {

// Below this many tokens a part costs more in merging and synchronising than it saves: 256 tokens
// of one 64-wide bf16 head are 64 KiB, some 2 us of reading.
constexpr size_t kMinPartTokens = 256;

// Items differ in length; four per thread let threads finish at nearly the same time.
constexpr size_t kItemsPerThread = 4;

uint64_t CostOf(const AttentionItem& item) {
  return uint64_t{item.queries} * (item.context_end - item.context_begin);
}

class Builder {
 public:
  Builder(AttentionPlan& plan, const StepBatch& batch, size_t block_tokens, const Reach& reach,
          std::span<const size_t> tables)
      : plan_(plan),
        batch_(batch),
        whole_(batch.whole()),
        block_tokens_(block_tokens),
        reach_(reach),
        tables_(tables) {}

  void Build(size_t threads, std::vector<AttentionPlan::Alike>& all) {
    CollectRuns();
    if (threads > 1) {
      uint64_t cost = 0;
      for (const Alike& alike : all)
        ForTiles(alike, [&](const Tile& tile) { cost += Cost(tile) * alike.groups.size(); });
      most_cost_ = cost / (kItemsPerThread * threads * batch_.finer()) + 1;
    }
    for (Alike& alike : all) Cut(alike);
  }

 private:
  using Alike = AttentionPlan::Alike;

  // Query tokens of the whole step that read the same cached tokens, each as much of [begin, end)
  // as it may see.
  struct Run {
    uint32_t slice, first_query, queries;
    size_t begin, end;
    bool alone;  // there is no other run for these query tokens
  };
  // The query tokens of a run that one kernel call takes, and the range that they see together.
  // Those of other parts of the step count as well: however it is cut, a token's context is divided
  // at the same places. Of the tokens of a shared run, each part takes its own.
  struct Tile {
    const Run& run;
    uint32_t first_query, queries;
    size_t begin, end;
  };
  static uint64_t Cost(const Tile& tile) { return tile.queries * (tile.end - tile.begin); }

  // A query token of the whole step, and how many of AttentionPlan::queries come before it.
  struct StepQuery {
    uint32_t position, here;
  };

  // A partial result of one query token, to be merged with others.
  struct Piece {
    uint32_t row;
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
    for (uint32_t s = 0; s < whole_.slices.size(); ++s) {
      const auto& slice = whole_.slices[s];
      const size_t rows = Planned(slice);
      if (rows == 0) continue;
      if (MayShare(slice)) {
        decoding.push_back(s);
        continue;
      }
      AddRun(s, 0, slice.first_position + rows, true);
      for (size_t row = 0; row < rows; ++row) AddQuery(slice, row);
    }
    FindSharedRuns(whole_, decoding, block_tokens_, tables_, [&](const SharedRun& shared) {
      const uint32_t first = shared.slices.front();
      const bool alone = shared.slices.size() == 1 && shared.begin == 0;
      AddRun(first, shared.begin, shared.end, alone);
      const size_t before = plan_.queries.size();
      for (const uint32_t s : shared.slices) AddQuery(whole_.slices[s], 0);
      const size_t here = plan_.queries.size() - before;
      if (here > 1) plan_.shared_tokens += (here - 1) * (shared.end - shared.begin);
    });
  }

  void AddRun(uint32_t slice, size_t begin, size_t end, bool alone) {
    runs_.push_back({slice, static_cast<uint32_t>(queries_.size()), 0, begin, end, alone});
  }
  // The plan gets those of this part alone, in the same order: a tile's are consecutive there, too.
  void AddQuery(const StepBatch::Slice& slice, size_t row) {
    const size_t last = slice.first_position + slice.rows - 1;
    const size_t position = reach_.ahead == Reach::kWholeSequence
                                ? last
                                : slice.first_position + row + static_cast<size_t>(reach_.ahead);
    queries_.push_back(
        {static_cast<uint32_t>(position), static_cast<uint32_t>(plan_.queries.size())});
    ++runs_.back().queries;
    const size_t row_here = slice.first_row + row - batch_.whole_row;  // huge if it is before
    if (batch_.is_part() && row_here >= batch_.tokens.size()) return;
    plan_.queries.push_back({static_cast<uint32_t>(row_here), static_cast<uint32_t>(position)});
  }

  template <typename F>
  void ForTiles(const Alike& alike, F f) const {
    const auto most = static_cast<uint32_t>(kernels::kAttentionRows / alike.q_heads);
    for (const Run& run : runs_)
      for (uint32_t query = 0; query < run.queries;) {
        const uint32_t count = std::min(most, InOneTile(run, query));
        f(MakeTile(run, run.first_query + query, count));
        query += count;
      }
  }

  // How many of a run's query tokens from `query` on a tile may have: those in the same chunk that
  // no cut of the step can separate. Those of a shared run all are in the first chunk, and any cut
  // may lie between them.
  uint32_t InOneTile(const Run& run, uint32_t query) const {
    uint32_t most = run.queries - query;
    if (MayShare(whole_.slices[run.slice])) return most;
    constexpr auto kCut = static_cast<uint32_t>(kCutRows);
    if (batch_.is_part()) most = std::min(most, kCut - query % kCut);
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

  void Cut(Alike& alike) {
    pieces_.clear();
    ForTiles(alike, [&](const Tile& tile) { CutTile(tile, alike); });
    JoinPieces(alike);
    std::stable_sort(
        alike.items.begin(), alike.items.end(),
        [](const AttentionItem& a, const AttentionItem& b) { return CostOf(a) > CostOf(b); });
  }

  void CutTile(const Tile& tile, Alike& alike) {
    const uint32_t first = Here(tile.first_query);
    const uint32_t queries = Here(tile.first_query + tile.queries) - first;
    if (queries == 0) return;
    const size_t tokens = tile.end - tile.begin, wanted = (Cost(tile) - 1) / most_cost_ + 1;
    const size_t cuts = std::clamp<size_t>(tokens / kMinPartTokens, 1, wanted);
    const size_t step = kernels::RoundUp((tokens + cuts - 1) / cuts, block_tokens_);
    const bool whole = tile.run.alone && step >= tokens;
    AttentionItem item = {
        SliceOf(tile, plan_.queries[first].row), 0, first, queries, 0, 0, -1, tile.queries};
    const uint32_t first_part = alike.parts;
    for (size_t at = tile.begin; at < tile.end; at += step) {
      item.context_begin = static_cast<uint32_t>(at);
      item.context_end = static_cast<uint32_t>(std::min(at + step, tile.end));
      if (!whole) item.part = static_cast<int32_t>(alike.parts++);
      alike.items.push_back(item);
    }
    if (!whole) Join(item, tile.run.alone, first_part, alike);
  }

  // How many query tokens of this part come before one of the whole step.
  uint32_t Here(size_t query) const {
    return query < queries_.size() ? queries_[query].here
                                   : static_cast<uint32_t>(plan_.queries.size());
  }

  // The slice of this part whose block tables lead to the tile's context: that of the row, as the
  // run's first one may be in another part.
  uint32_t SliceOf(const Tile& tile, size_t row) const {
    if (!batch_.is_part()) return tile.run.slice;
    const auto& all = batch_.slices;
    const auto behind = std::upper_bound(
        all.begin(), all.end(), row,
        [](size_t each, const StepBatch::Slice& slice) { return each < slice.first_row; });
    return static_cast<uint32_t>(behind - all.begin()) - 1;
  }

  // item: the last of a tile's.
  void Join(const AttentionItem& item, bool alone, uint32_t first_part, Alike& alike) {
    if (alone) return JoinTile(item, first_part, alike);
    for (uint32_t i = 0; i < item.queries; ++i)
      for (uint32_t part = first_part; part < alike.parts; ++part)
        pieces_.push_back({plan_.queries[item.first_query + i].row, {part, i}});
  }

  void JoinTile(const AttentionItem& item, uint32_t first_part, Alike& alike) const {
    alike.joins.push_back({0, plan_.queries[item.first_query].row, item.queries,
                           static_cast<uint32_t>(alike.sources.size()), alike.parts - first_part});
    for (uint32_t part = first_part; part < alike.parts; ++part) alike.sources.push_back({part, 0});
  }

  // Rows that took part in shared runs: one join each.
  void JoinPieces(Alike& alike) {
    std::stable_sort(pieces_.begin(), pieces_.end(),
                     [](const Piece& a, const Piece& b) { return a.row < b.row; });
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& piece = pieces_[i];
      if (i == 0 || pieces_[i - 1].row != piece.row)
        alike.joins.push_back({0, piece.row, 1, static_cast<uint32_t>(alike.sources.size()), 0});
      alike.sources.push_back(piece.source);
      ++alike.joins.back().sources;
    }
  }

  AttentionPlan& plan_;
  const StepBatch &batch_, &whole_;
  const size_t block_tokens_;
  const Reach reach_;
  const std::span<const size_t> tables_;
  uint64_t most_cost_ = std::numeric_limits<uint64_t>::max();  // of an item
  std::vector<Run> runs_;
  std::vector<StepQuery> queries_;
  std::vector<Piece> pieces_;  // of the groups that are being cut
};

// Groups with equal numbers of query heads, in the order of the first of them. Keeps memory.
void GroupAlike(const HeadShare& heads, std::vector<AttentionPlan::Alike>& all) {
  size_t count = 0;
  for (AttentionPlan::Alike& alike : all) alike.groups.clear();
  for (uint32_t group = 0; group < heads.groups.size(); ++group) {
    const auto q_heads = static_cast<uint32_t>(heads.groups[group].q_heads);
    size_t at = 0;
    while (at < count && all[at].q_heads != q_heads) ++at;
    if (at == count && ++count > all.size()) all.emplace_back();
    all[at].q_heads = q_heads;
    all[at].groups.push_back(group);
  }
  all.resize(count);
  for (AttentionPlan::Alike& alike : all) {
    alike.items.clear();
    alike.joins.clear();
    alike.sources.clear();
    alike.places.clear();
    alike.parts = 0;
  }
}

// Calls copy(index, group) for the copies [begin, end) of a list that each group has, the groups
// one after the other.
template <typename F>
void ForCopies(size_t length, std::pair<size_t, size_t> range, const F& copy) {
  for (size_t at = range.first; at < range.second;) {
    const size_t group = at / length, end = std::min(range.second, (group + 1) * length);
    for (; at < end; ++at) copy(at - group * length, group);
  }
}

}  // namespace

void AttentionPlan::Lay(const StepBatch& batch, const HeadShare& heads, size_t threads,
                        size_t block_tokens, const Reach& reach, std::span<const size_t> tables) {
  queries.clear();
  shared_tokens = 0;
  GroupAlike(heads, alike_);
  Builder(*this, batch, block_tokens, reach, tables).Build(threads, alike_);
  size_t item_count = 0, join_count = 0, source_count = 0;
  parts = 0;
  for (Alike& alike : alike_) {
    const size_t groups = alike.groups.size();
    alike.first_join = join_count;
    alike.first_source = source_count;
    alike.first_part = parts;
    item_count += alike.items.size() * groups;
    join_count += alike.joins.size() * groups;
    source_count += alike.sources.size() * groups;
    parts += alike.parts * groups;
  }
  items.resize(item_count);
  joins.resize(join_count);
  sources.resize(source_count);
  if (alike_.size() > 1) PlaceItems();
}

// The longest first, whichever groups they are of.
void AttentionPlan::PlaceItems() {
  struct Next {
    Alike* alike;
    size_t item;
  };
  std::vector<Next> order;
  for (Alike& alike : alike_) {
    alike.places.resize(alike.items.size());
    for (size_t i = 0; i < alike.items.size(); ++i) order.push_back({&alike, i});
  }
  std::stable_sort(order.begin(), order.end(), [](const Next& a, const Next& b) {
    return CostOf(a.alike->items[a.item]) > CostOf(b.alike->items[b.item]);
  });
  size_t place = 0;
  for (const auto& [alike, item] : order) {
    alike->places[item] = place;
    place += alike->groups.size();
  }
}

void AttentionPlan::Expand(size_t piece, size_t pieces) {
  for (const Alike& alike : alike_) {
    const size_t groups = alike.groups.size();
    const auto part_of = [&](size_t group) { return alike.first_part + group * alike.parts; };
    const auto [begin, end] = SliceOf(alike.items.size(), piece, pieces);
    for (size_t i = begin; i < end; ++i) {
      const size_t place = alike.places.empty() ? i * groups : alike.places[i];
      for (size_t group = 0; group < groups; ++group) {
        AttentionItem& item = items[place + group] = alike.items[i];
        item.group = alike.groups[group];
        if (item.part >= 0) item.part += static_cast<int32_t>(part_of(group));
      }
    }
    ForCopies(alike.joins.size(), SliceOf(alike.joins.size() * groups, piece, pieces),
              [&](size_t i, size_t group) {
                AttentionJoin& join = joins[alike.first_join + group * alike.joins.size() + i];
                join = alike.joins[i];
                join.group = alike.groups[group];
                join.first_source +=
                    static_cast<uint32_t>(alike.first_source + group * alike.sources.size());
              });
    ForCopies(alike.sources.size(), SliceOf(alike.sources.size() * groups, piece, pieces),
              [&](size_t i, size_t group) {
                PartSource& to = sources[alike.first_source + group * alike.sources.size() + i];
                to = alike.sources[i];
                to.part += static_cast<uint32_t>(part_of(group));
              });
  }
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
  for (size_t kind = 0; kind < plans_.size(); ++kind) Lay(kind, batch, threads, block_tokens);
  Expand(0, 1);
}

void AttentionPlans::Lay(size_t kind, const StepBatch& batch, size_t threads, size_t block_tokens) {
  const auto& [first, tables] = kinds_.at(kind);
  plans_[kind].Lay(batch, *first.heads, threads, block_tokens, first.reach, tables);
}

void AttentionPlans::Expand(size_t piece, size_t pieces) {
  for (AttentionPlan& plan : plans_) plan.Expand(piece, pieces);
}

size_t AttentionPlans::parts() const {
  size_t most = 0;
  for (const AttentionPlan& plan : plans_) most = std::max(most, plan.parts);
  return most;
}

}  // namespace pinion
