#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion {

// One logical CPU (processing unit) and its place. Ids are the operating system's and may be
// sparse; `core`, `l3` and `package` are numbers that are unique within the machine.
struct Cpu {
  int id;
  int core;
  int sibling;  // 0 for a core's first logical CPU, 1 for its SMT sibling, ...
  int l3;
  int package;
  int node;      // NUMA node id
  int kind = 0;  // its index in Machine::kinds; 0 if there are none
};

// The cores of one kind, on a machine that has several.
struct CpuKind {
  std::string name;  // "performance", "efficiency", "up to 3300 MHz", ...
  // A small core beside large ones (Intel's E cores), whose thread is the last to end its share of
  // a step. A kind that is only clocked lower does not count.
  bool is_efficiency = false;
};

struct NumaNode {
  int id;
  std::vector<int> cpus;  // ascending
  uint64_t memory_bytes = 0;
  bool memory_allowed = true;  // false if a cpuset forbids allocating there
};

// The machine's hardware, whether or not this process may use it. A snapshot.
struct Machine {
  std::string name;             // CPU model, or the synthetic description
  bool this_system = true;      // false for a synthetic machine: plans only, nothing is bound
  std::vector<Cpu> cpus;        // online, ascending by id
  std::vector<NumaNode> nodes;  // ascending by id; one without CPUs has memory only
  uint64_t l3_bytes = 0;        // of one L3 domain; 0: unknown, and `l3` numbers NUMA nodes instead
  // From the slowest up; empty if all cores are alike, or it is unknown which ones are faster.
  std::vector<CpuKind> kinds = {};

  const Cpu* Find(int cpu_id) const;
};

// The whole machine that this process runs on (hwloc honours HWLOC_SYNTHETIC and HWLOC_XMLFILE);
// affinity, cpusets and quotas belong to the budget.
Result<Machine> ThisMachine();

// A machine from hwloc's synthetic description ("pack:2 numa:1 core:32 pu:2") or, if it ends in
// ".xml", from a file that `lstopo` wrote. Never this system. Errors are kUsage or kNotFound.
Result<Machine> ImagineMachine(const std::string& description);

// A stable identity for comparing results:
// {"cpu_model","packages","cores","cpus","l3_bytes","nodes":[{"id","cpus","memory_bytes"}],
//  "kernel","isa_flags":[]}; a synthetic machine has neither kernel nor ISA flags (null, []).
Json MachineFingerprint(const Machine& machine);

// Facts for a drawing of the machine, cores in the order of their L3 domains:
// {"name","l3_bytes","nodes":[{"id","memory_bytes","memory_allowed",
//                              "cores":[{"package","l3","cpus":[]}]}]}
Json MachineLayout(const Machine& machine);

}  // namespace pinion
