#include "engine/decoder/attention_plan.h"

#include <algorithm>
#include <utility>

#include "engine/decoder/attention_items.h"
#include "engine/host/phases.h"

namespace pinion {
namespace {

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
    alike.slots = 0;
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

// The longest first, whichever groups they are of.
void PlaceItems(std::vector<AttentionPlan::Alike>& all) {
  struct Next {
    AttentionPlan::Alike* alike;
    size_t item;
  };
  std::vector<Next> order;
  for (AttentionPlan::Alike& alike : all) {
    alike.places.resize(alike.items.size());
    for (size_t i = 0; i < alike.items.size(); ++i) order.push_back({&alike, i});
  }
  std::stable_sort(order.begin(), order.end(), [](const Next& a, const Next& b) {
    return a.alike->items[a.item].cost() > b.alike->items[b.item].cost();
  });
  size_t place = 0;
  for (const auto& [alike, item] : order) {
    alike->places[item] = place;
    place += alike->groups.size();
  }
}

// Makes room for the copies that all groups get, and says where each begins.
void LayOutCopies(AttentionPlan& plan) {
  size_t items = 0, joins = 0, sources = 0;
  plan.slots = 0;
  for (AttentionPlan::Alike& alike : plan.alike) {
    const size_t groups = alike.groups.size();
    alike.first_join = joins;
    alike.first_source = sources;
    alike.first_slot = plan.slots;
    items += alike.items.size() * groups;
    joins += alike.joins.size() * groups;
    sources += alike.sources.size() * groups;
    plan.slots += alike.slots * groups;
  }
  plan.items.resize(items);
  plan.joins.resize(joins);
  plan.sources.resize(sources);
  if (plan.alike.size() > 1) PlaceItems(plan.alike);
}

void CopyPiece(AttentionPlan& plan, size_t piece, size_t pieces) {
  for (const AttentionPlan::Alike& alike : plan.alike) {
    const size_t groups = alike.groups.size();
    const auto slot_of = [&](size_t group) { return alike.first_slot + group * alike.slots; };
    const auto [begin, end] = SliceOf(alike.items.size(), piece, pieces);
    for (size_t i = begin; i < end; ++i) {
      const size_t place = alike.places.empty() ? i * groups : alike.places[i];
      for (size_t group = 0; group < groups; ++group) {
        AttentionItem& item = plan.items[place + group] = alike.items[i];
        item.group = alike.groups[group];
        if (item.slot >= 0) item.slot += static_cast<int32_t>(slot_of(group));
      }
    }
    ForCopies(alike.joins.size(), SliceOf(alike.joins.size() * groups, piece, pieces),
              [&](size_t i, size_t group) {
                AttentionJoin& join = plan.joins[alike.first_join + group * alike.joins.size() + i];
                join = alike.joins[i];
                join.group = alike.groups[group];
                join.first_source +=
                    static_cast<uint32_t>(alike.first_source + group * alike.sources.size());
              });
    ForCopies(alike.sources.size(), SliceOf(alike.sources.size() * groups, piece, pieces),
              [&](size_t i, size_t group) {
                SlotToken& to = plan.sources[alike.first_source + group * alike.sources.size() + i];
                to = alike.sources[i];
                to.slot += static_cast<uint32_t>(slot_of(group));
              });
  }
}

}  // namespace

void AttentionPlans::Share(std::span<const AttendingLayer> layers) {
  kinds_.clear();
  kind_of_layer_.clear();
  for (const AttendingLayer& layer : layers) {
    auto kind = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& each) {
      return each.first.reach == layer.reach && each.first.heads->groups == layer.heads->groups;
    });
    if (kind == kinds_.end())
      kind = kinds_.insert(kind, {.first = layer, .tables = {}, .plans = {}});
    std::vector<size_t>& tables = kind->tables;
    if (std::find(tables.begin(), tables.end(), layer.table) == tables.end())
      tables.push_back(layer.table);
    kind_of_layer_.resize(layer.layer + 1);
    kind_of_layer_.back() = static_cast<size_t>(kind - kinds_.begin());
  }
}

void AttentionPlans::Build(const StepBatch& step, Parts parts, size_t threads,
                           size_t block_tokens) {
  for (size_t kind = 0; kind < kinds_.size(); ++kind) Lay(kind, step, parts, threads, block_tokens);
  Expand(0, 1);
}

void AttentionPlans::Lay(size_t kind, const StepBatch& step, Parts parts, size_t threads,
                         size_t block_tokens) {
  Kind& laid = kinds_.at(kind);
  laid.parts = parts.size();
  laid.plans.resize(std::max(laid.plans.size(), laid.parts));
  if (parts.empty()) return;
  for (AttentionPlan& plan : laid.current()) {
    plan.queries.clear();
    plan.shared_tokens = 0;
    GroupAlike(*laid.first.heads, plan.alike);
  }
  MakeItems(laid.current(), step, parts, threads, block_tokens, laid.first.reach, laid.tables);
  for (AttentionPlan& plan : laid.current()) LayOutCopies(plan);
}

void AttentionPlans::Expand(size_t piece, size_t pieces) {
  for (Kind& kind : kinds_)
    for (AttentionPlan& plan : kind.current()) CopyPiece(plan, piece, pieces);
}

size_t AttentionPlans::slots() const {
  size_t most = 0;
  for (const Kind& kind : kinds_)
    for (size_t part = 0; part < kind.parts; ++part) most = std::max(most, kind.plans[part].slots);
  return most;
}

}  // namespace pinion
