#include "harness/sweep/in_turns.h"

#include <algorithm>

#include "engine/host/budget.h"
#include "engine/run/capacity.h"
#include "engine/run/replicas.h"
#include "engine/run/start.h"

namespace pinion::harness {
namespace {

// Adds the ranks of all of a side's engines, and what each needs.
Status AddRanks(const TrialRequest& side, const Machine& machine, const Budget& budget,
                std::vector<RankNeeds>& needs, Plan& plan) {
  PINION_ASSIGN(const PlannedModel model, PlanModel(side.options));
  PINION_ASSIGN(const std::vector<RankNeeds> each, NeedsFor(side.options, model));
  PINION_ASSIGN(const Plan own, PlanReplicas(side.options, side.replicas, machine, budget));
  for (const RankPlan& rank : own.ranks) {
    needs.push_back(each[plan.ranks.size() % each.size()]);
    plan.ranks.push_back(rank);
  }
  return {};
}

Status CheckBothFit(const TrialRequest& first, const TrialRequest& second) {
  PINION_ASSIGN(const Machine machine, ThisMachine());
  PINION_ASSIGN(const Budget budget, ComputeBudget(machine));
  if (budget.memory_available_bytes == 0) return {};  // unknown
  for (const TrialRequest* side : {&first, &second}) {
    std::vector<RankNeeds> needs;
    Plan plan;
    PINION_TRY(AddRanks(first, machine, budget, needs, plan));
    PINION_TRY(AddRanks(second, machine, budget, needs, plan));
    PINION_ASSIGN(const PlannedModel model, PlanModel(side->options));
    PINION_ASSIGN(const size_t length, ResolveModelLength(model.spec, side->options));
    PINION_TRY(CheckCapacity(needs, side->options, length, machine, budget, plan));
  }
  return {};
}

double SampleOf(const TrialRow& trial, const char* metric) {
  for (const MetricValue& sample : trial.samples)
    if (sample.metric == metric) return sample.value;
  return 0;
}

}  // namespace

bool CanTakeTurns(const TrialRequest& first, const TrialRequest& second) {
  return first.engine.is_pinion() && second.engine.is_pinion() &&
         CheckBothFit(first, second).has_value();
}

int WavesFor(const TrialRow& alone, double budget_s) {
  const Json* warm_up = alone.info.rest.Find("warm_up_s");
  const double start_s =
      SampleOf(alone, "start_s") + (warm_up && warm_up->is_number() ? warm_up->number() : 0);
  const double wave_s =
      std::max(alone.seconds - start_s - alone.info.once_s.value_or(0), alone.seconds / 10);
  const double room_s = budget_s / kTurnRounds - 2 * start_s;
  return std::clamp(2 * static_cast<int>(room_s / (4 * wave_s)), 2, kMostWaves);
}

}  // namespace pinion::harness
