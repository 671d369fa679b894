#include "engine/host/read_plan.h"

#include <utility>

namespace pinion {
namespace {

const Json::Array& ItemsOf(const Json& object, const char* key) {
  static const Json::Array none;
  const Json* list = object.is_object() ? object.Find(key) : nullptr;
  return list && list->is_array() ? list->array() : none;
}

std::vector<int> IntegersOf(const Json& object, const char* key) {
  std::vector<int> numbers;
  for (const Json& item : ItemsOf(object, key))
    if (item.is_int()) numbers.push_back(static_cast<int>(item.integer()));
  return numbers;
}

std::vector<std::string> TextsOf(const Json& object, const char* key) {
  std::vector<std::string> texts;
  for (const Json& item : ItemsOf(object, key))
    if (item.is_string()) texts.push_back(item.string());
  return texts;
}

}  // namespace

Plan ReadPlan(const Json& told) {
  Plan plan;
  for (const Json& item : ItemsOf(told, "ranks")) {
    RankPlan& rank = plan.ranks.emplace_back();
    rank.rank = static_cast<int>(plan.ranks.size()) - 1;
    rank.cpus = IntegersOf(item, "cpus");
    rank.nodes = IntegersOf(item, "nodes");
    const Json* threads = item.is_object() ? item.Find("threads") : nullptr;
    const bool is_told = threads && threads->is_int();
    rank.threads =
        is_told ? static_cast<int>(threads->integer()) : static_cast<int>(rank.cpus.size());
  }
  plan.frontend_cpus = IntegersOf(told, "frontend_cpus");
  plan.warnings = TextsOf(told, "warnings");
  plan.reasons = TextsOf(told, "reasons");
  return plan;
}

}  // namespace pinion
