#include "engine/decoder/attention_plan.h"

#include <algorithm>
#include <utility>

#include "engine/decoder/attention_items.h"
#include "engine/host/phases.h"

namespace pinion {
namespace {

// Groups with equal numbers of query heads, in the order of the first of them. Keeps memory.
void CollectGroupPlans(const HeadShare& heads, std::vector<AttentionPlan::GroupPlan>& all) {
  size_t count = 0;
  for (AttentionPlan::GroupPlan& group_plan : all) group_plan.groups.clear();
  for (uint32_t group = 0; group < heads.groups.size(); ++group) {
    const auto q_heads = static_cast<uint32_t>(heads.groups[group].q_heads);
    size_t at = 0;
    while (at < count && all[at].q_heads != q_heads) ++at;
    if (at == count && ++count > all.size()) all.emplace_back();
    all[at].q_heads = q_heads;
    all[at].groups.push_back(group);
  }
  all.resize(count);
  for (AttentionPlan::GroupPlan& group_plan : all) {
    group_plan.items.clear();
    group_plan.joins.clear();
    group_plan.sources.clear();
    group_plan.places.clear();
    group_plan.slots = 0;
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
void PlaceItems(std::vector<AttentionPlan::GroupPlan>& all) {
  struct Next {
    AttentionPlan::GroupPlan* group_plan;
    size_t item;
  };
  std::vector<Next> order;
  for (AttentionPlan::GroupPlan& group_plan : all) {
    group_plan.places.resize(group_plan.items.size());
    for (size_t i = 0; i < group_plan.items.size(); ++i) order.push_back({&group_plan, i});
  }
  std::stable_sort(order.begin(), order.end(), [](const Next& a, const Next& b) {
    return a.group_plan->items[a.item].cost() > b.group_plan->items[b.item].cost();
  });
  size_t place = 0;
  for (const auto& [group_plan, item] : order) {
    group_plan->places[item] = place;
    place += group_plan->groups.size();
  }
}

// Makes room for the copies that all groups get, and says where each begins.
void LayOutCopies(AttentionPlan& plan) {
  size_t items = 0, joins = 0, sources = 0;
  plan.slots = 0;
  for (AttentionPlan::GroupPlan& group_plan : plan.group_plans) {
    const size_t groups = group_plan.groups.size();
    group_plan.first_join = joins;
    group_plan.first_source = sources;
    group_plan.first_slot = plan.slots;
    items += group_plan.items.size() * groups;
    joins += group_plan.joins.size() * groups;
    sources += group_plan.sources.size() * groups;
    plan.slots += group_plan.slots * groups;
  }
  plan.items.resize(items);
  plan.joins.resize(joins);
  plan.sources.resize(sources);
  if (plan.group_plans.size() > 1) PlaceItems(plan.group_plans);
}

void CopyPiece(AttentionPlan& plan, size_t piece, size_t pieces) {
  for (const AttentionPlan::GroupPlan& group_plan : plan.group_plans) {
    const size_t groups = group_plan.groups.size();
    const auto slot_of = [&](size_t group) {
      return group_plan.first_slot + group * group_plan.slots;
    };
    const auto [begin, end] = SliceOf(group_plan.items.size(), piece, pieces);
    for (size_t i = begin; i < end; ++i) {
      const size_t place = group_plan.places.empty() ? i * groups : group_plan.places[i];
      for (size_t group = 0; group < groups; ++group) {
        AttentionItem& item = plan.items[place + group] = group_plan.items[i];
        item.group = group_plan.groups[group];
        if (item.slot >= 0) item.slot += static_cast<int32_t>(slot_of(group));
      }
    }
    ForCopies(group_plan.joins.size(), SliceOf(group_plan.joins.size() * groups, piece, pieces),
              [&](size_t i, size_t group) {
                AttentionJoin& join =
                    plan.joins[group_plan.first_join + group * group_plan.joins.size() + i];
                join = group_plan.joins[i];
                join.group = group_plan.groups[group];
                join.first_source += static_cast<uint32_t>(group_plan.first_source +
                                                           group * group_plan.sources.size());
              });
    ForCopies(group_plan.sources.size(), SliceOf(group_plan.sources.size() * groups, piece, pieces),
              [&](size_t i, size_t group) {
                SlotToken& to =
                    plan.sources[group_plan.first_source + group * group_plan.sources.size() + i];
                to = group_plan.sources[i];
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
    CollectGroupPlans(*laid.first.heads, plan.group_plans);
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
