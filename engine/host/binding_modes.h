#pragma once

// Private to binding.cc and the files that each plan one mode.

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

// A count for messages: "1 core", "3 cores".
std::string Count(size_t number, std::string_view noun);

// Drops threads from the ends of the longest ranks until `most` remain, at least one per rank.
// Returns the number dropped. Requires `most` >= the number of ranks.
size_t TrimRanks(std::vector<std::vector<int>>& cpus_of_rank, size_t most);

// "the quota of 3.5 CPUs allows 3 threads", for messages about dropped threads.
std::string DescribeQuota(const Budget& budget);

// A plan whose rank r runs on cpus_of_rank[r], with its nodes.
Plan PlanOf(const Machine& machine, std::vector<std::vector<int>> cpus_of_rank);

// Warns if the smallest rank has over 1 thread less (the front end's core) than the largest.
void WarnOfUnevenRanks(Plan& plan);

}  // namespace pinion
