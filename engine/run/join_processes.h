#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/checkpoint/tensors.h"
#include "engine/comm/communicator.h"
#include "engine/host/binding.h"
#include "engine/host/budget.h"
#include "engine/run/options.h"
#include "engine/weights/shard.h"

namespace pinion {

// The processes that were started together with this one, if any (else null), each of which takes
// an equal part of the ranks. On the leader: has the others start the model with these options.
// able: whether this process can do that. Those that follow tell it the others, which may wait for
// them already; the leader, which nobody waits for yet, returns its error.
Result<Communicator*> JoinProcesses(const EngineOptions& options, Status able);
// The same among processes that have joined.
Status StartTogether(Communicator& world, const EngineOptions& options, Status able);

// The text of the leader's order to start a model, and the options in it. Error (kUsage): the
// leader's Pinion is another version, or has other options.
std::string StartText(const EngineOptions& options);
Result<EngineOptions> OptionsOf(const std::string& start_text);

// The CPU time that a process may use on the CPUs that its threads run on.
struct CpuTime {
  size_t threads = 1, cpus = 1;  // the CPUs that it may run on
  std::optional<double> quota;   // in CPUs; unset: without limit
  double used() const;           // in CPUs
};
// `host`: ComputeBudget's, for all processes of this host, of which there are `locals`; `own`: this
// process's part of it, for which `plan` is made.
CpuTime CpuTimeOf(const Budget& host, size_t locals, const Budget& own, const Plan& plan);

// Refuses processes with different CPU time, by their CPUs or by a quota: the one with the least
// would hold up every step. accepted: the consequence of accepting them, of which the leader warns
// instead; null: they are refused. Collective, whether or not this process could plan its ranks.
Status AgreeOnCpuTime(Communicator& world, const Result<CpuTime>& mine, const char* accepted);

// The shares of the ranks of all processes of `team`, which compute the same layers with `each`
// ranks a process: in proportion to the CPU time of their process. Collective.
RankShares SharesByCpuTime(Communicator& team, const CpuTime& mine, size_t each);

// The budget of this process: a share of the host's if the launcher started several here. Under
// --threads-bind with explicit lists, only memory is divided.
Result<Budget> BudgetHere(const EngineOptions& options, const Machine& machine);
// Free memory of that.
uint64_t AvailableMemoryHere();

// Options to plan the ranks of one process by, if `processes` share those of `options` evenly.
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

// The model that a process is about to compute, and the code and number types that compute it.
struct Identity {
  std::string isa, types, model;
};
Status AgreeOnIdentity(Communicator& world, const Identity& mine);

// Sixteen hexadecimal digits of the names, shapes and first rows of all tensors.
std::string HashOf(const TensorSource& weights);
std::string HashOf(const std::string& text);

}  // namespace pinion
