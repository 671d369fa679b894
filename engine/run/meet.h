#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/checkpoint/tensors.h"
#include "engine/comm/communicator.h"
#include "engine/host/budget.h"
#include "engine/run/options.h"

namespace pinion {

// The processes that were started together with this one, if any (else null), each of which takes
// an equal part of the ranks. On the leader: has the others start the model with these options.
Result<Communicator*> MeetProcesses(const EngineOptions& options);

// The CPU time that each process may use, which must be the same in all: the one with the least
// would hold up every step. Collective, before the ranks are planned, which a quota may leave no
// room for. `mine`: ComputeBudget's, for all processes of this host, of which there are `locals`.
Status AgreeOnQuota(Communicator& world, const Result<Budget>& mine, size_t locals);

// The budget of this process: a share of the host's if the launcher started several here. Under
// --threads-bind with explicit lists, only memory is divided.
Result<Budget> BudgetHere(const EngineOptions& options, const Machine& machine);
// Free memory of that.
uint64_t AvailableMemoryHere();

// What to plan the ranks of one process by, if `processes` share those of `options` evenly.
EngineOptions OptionsOfPart(EngineOptions options, size_t processes);

// Something that must be the same in all processes.
struct SharedFact {
  const char* what;
  std::string mine;
  const char* way_out =
      "start the same program with the same files on all hosts, with an --isa that all of them "
      "have";
};
// The error names the first process that differs from the leader, and both values.
Status Agree(Communicator& world, const std::vector<SharedFact>& facts);

// Sixteen hexadecimal digits of the names, shapes and first rows of all tensors.
std::string HashOf(const TensorSource& weights);
std::string HashOf(const std::string& text);

}  // namespace pinion
