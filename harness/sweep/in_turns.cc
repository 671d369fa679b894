#include "harness/sweep/in_turns.h"

#include <algorithm>

#include "engine/host/budget.h"
#include "engine/run/capacity.h"
#include "engine/run/replicas.h"
#include "engine/run/start.h"
#include "harness/sweep/score.h"

namespace pinion::harness {
namespace {

// A side's ranks, of all of its engines, and the needs of each.
struct SideNeeds {
  std::vector<RankNeeds> needs;
  Plan plan;
  size_t model_length = 0;
};

Result<SideNeeds> NeedsOf(const TrialRequest& side, const Machine& machine, const Budget& budget) {
  SideNeeds of;
  PINION_ASSIGN(const PlannedModel model, PlanModel(side.configuration.options));
  PINION_ASSIGN(const std::vector<RankNeeds> each, NeedsFor(side.configuration.options, model));
  PINION_ASSIGN(of.plan, PlanReplicas(side.configuration.options, side.configuration.replicas,
                                      machine, budget));
  PINION_ASSIGN(of.model_length, ResolveModelLength(model.spec, side.configuration.options));
  for (size_t rank = 0; rank < of.plan.ranks.size(); ++rank)
    of.needs.push_back(each[rank % each.size()]);
  return of;
}

// By the options of either side, which may ask for caches of different sizes.
Status CheckBothFit(const TrialRequest& first, const TrialRequest& second) {
  PINION_ASSIGN(const Machine machine, ThisMachine());
  PINION_ASSIGN(const Budget budget, ComputeBudget(machine));
  if (budget.memory_available_bytes == 0) return {};  // unknown
  PINION_ASSIGN(SideNeeds both, NeedsOf(first, machine, budget));
  PINION_ASSIGN(const SideNeeds other, NeedsOf(second, machine, budget));
  both.needs.insert(both.needs.end(), other.needs.begin(), other.needs.end());
  both.plan.ranks.insert(both.plan.ranks.end(), other.plan.ranks.begin(), other.plan.ranks.end());
  PINION_TRY(CheckCapacity(both.needs, first.configuration.options, both.model_length, machine,
                           budget, both.plan));
  return CheckCapacity(both.needs, second.configuration.options, other.model_length, machine,
                       budget, both.plan);
}

}  // namespace

bool CanTakeTurns(const TrialRequest& first, const TrialRequest& second) {
  return first.engine.is_pinion() && second.engine.is_pinion() &&
         CheckBothFit(first, second).has_value();
}

int WavesFor(const TrialRow& alone, double budget_s) {
  const double start_s =
      ValueOf(alone, "start_s", 0).value_or(0) + alone.info.warm_up_s.value_or(0);
  const double wave_s =
      std::max(alone.seconds - start_s - alone.info.once_s.value_or(0), alone.seconds / 10);
  const double room_s = budget_s / kTurnRounds - 2 * start_s;
  return std::clamp(static_cast<int>(room_s / (2 * wave_s)), 2, kMostWaves);
}

}  // namespace pinion::harness
