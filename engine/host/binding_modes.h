#pragma once

// Between binding.cc and the files that plan one mode each; nobody else needs it.

#include <string>
#include <vector>

#include "engine/host/binding.h"

namespace pinion {

struct BindingInput {
  const Machine& machine;
  const Budget& budget;
  const BindingRequest& request;
};

Result<Plan> PlanAuto(const BindingInput& input);
Result<Plan> PlanAll(const BindingInput& input);
Result<Plan> PlanNobind(const BindingInput& input);
Result<Plan> PlanLists(const BindingInput& input);

// How every message names a count: "1 core", "3 cores".
std::string Count(size_t number, std::string_view what);

// Takes threads away from the ends of the longest ranks until `most` remain, and at least one each.
// Returns how many were taken. Requires at least one thread per rank in `most`.
size_t TrimRanks(std::vector<std::vector<int>>& cpus_of_rank, size_t most);

// "the quota of 3.5 CPUs allows 3 threads", for messages about what was trimmed.
std::string QuotaSays(const Budget& budget);

// A plan whose rank r runs on cpus_of_rank[r], with its nodes.
Plan PlanOf(const Machine& machine, std::vector<std::vector<int>> cpus_of_rank);

// Two ranks of which the shorter sets the pace, where they differ by more than a core held back.
void WarnOfUnevenRanks(Plan& plan);

}  // namespace pinion
