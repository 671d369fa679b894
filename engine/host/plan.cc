#include "engine/base/json.h"
#include "engine/host/binding.h"

namespace pinion {

int Plan::total_threads() const {
  int total = 0;
  for (const RankPlan& rank : ranks) total += rank.threads;
  return total;
}

Json ToJson(const Plan& plan) {
  Json ranks = Json::MakeArray();
  for (const RankPlan& rank : plan.ranks) {
    Json item;
    item.Set("rank", rank.rank);
    item.Set("cpus", rank.cpus);
    item.Set("nodes", rank.nodes);
    item.Set("threads", rank.threads);
    ranks.Append(std::move(item));
  }
  Json object;
  object.Set("ranks", std::move(ranks));
  object.Set("frontend_cpus", plan.frontend_cpus);
  object.Set("warnings", plan.warnings);
  object.Set("reasons", plan.reasons);
  return object;
}

}  // namespace pinion
