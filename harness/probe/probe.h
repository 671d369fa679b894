#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/host/binding.h"
#include "kernels/isa.h"
#include "kernels/types.h"

namespace pinion::harness {

struct ProbeOptions {
  double seconds = 10;  // approximate time of the measurement, 1 to 60
  // Memory to read, over all threads: far more than the caches hold, or the figures would be
  // theirs.
  uint64_t memory_bytes = uint64_t{2} << 30;
};
Status Validate(const ProbeOptions& options);  // kUsage

// Bytes per second read from memory by one thread on each of `cpus`, each from its own node.
struct ReadRate {
  std::vector<int> cpus;
  double bytes_per_s = 0;
};

// The same for the threads of one NUMA node and the memory of one.
struct NodeRate {
  int cpu_node = 0, memory_node = 0;
  int threads = 0;
  double bytes_per_s = 0;
};

// Reads from a cache. Threads that share it share `read_bytes`.
struct CacheRate {
  int level = 0;
  uint64_t cache_bytes = 0,
           read_bytes = 0;  // its size; the bytes that each thread reads repeatedly
  int threads = 0;
  double bytes_per_s = 0;
};

// Multiply-adds from registers; a multiply-add counts as two operations.
struct ComputeRate {
  kernels::Isa isa;
  kernels::Dtype dtype;
  int threads = 0;
  double flops_per_s = 0;
};

// The same for int8, by the fastest instruction that an ISA path's kernels may use.
struct Int8Rate {
  kernels::Isa isa;
  int threads = 0;
  double operations_per_s = 0;
};

// The same for a single instruction, of types or widths that no ISA path uses.
struct InstructionRate {
  std::string type, name;
  int threads = 0;
  double operations_per_s = 0;
};

// Time from one load to the next that depends on it.
struct Latency {
  int level = 0;       // of a cache; 0: memory
  uint64_t bytes = 0;  // size of the memory that was visited
  double ns = 0;
};

// The choice of `pinion run`, `bench` and `serve`, in the form of --gemm-kernel.
struct GemmChoice {
  kernels::Dtype dtype;
  std::string rules;
};

// e^x in float32, as attention computes it.
struct ExpRate {
  kernels::Isa isa;
  int threads = 0;
  double per_s = 0;
};

struct Distance {
  int cpu = 0, other_cpu = 0;
  double one_way_ns = 0;  // of a cache line
};

struct MissingFigure {
  std::string what, why;
};

// The machine's measured limits.
struct ProbeResult {
  Machine machine;
  Budget budget;
  Plan plan;  // the threads: one per physical core
  std::vector<ReadRate> reads;
  std::vector<NodeRate> nodes;
  std::vector<CacheRate> caches;
  std::vector<ComputeRate> compute;
  std::vector<Int8Rate> int8;  // of the ISA paths that have such an instruction
  std::vector<InstructionRate> instructions;
  std::vector<ExpRate> exps;
  std::vector<Latency> latencies;
  std::vector<GemmChoice> gemm;                             // of the best ISA path
  std::optional<double> barrier_ns, fork_join_ns, wake_ns;  // between threads
  std::vector<Distance> distances;
  std::vector<MissingFigure> missing;
  double elapsed_s = 0;
};

// Measures on the CPUs of the budget, one thread per physical core. `progress` gets the name of the
// next figure. Errors: a described machine, too little memory, CPUs that cannot be used.
Result<ProbeResult> RunProbe(const ProbeOptions& options,
                             const std::function<void(const std::string& what)>& progress);

// {"machine":{...},"threads","cpus","elapsed_s","memory_read":[{"threads","cpus","bytes_per_s"}],
//  "nodes":[{"cpu_node","memory_node","threads","bytes_per_s"}],
//  "caches":[{"level","cache_bytes","read_bytes","threads","bytes_per_s"}],
//  "compute":[{"isa","dtype","threads","flops_per_s"}],
//  "int8":[{"isa","threads","operations_per_s"}],"exp":[{"isa","threads","exps_per_s"}],
//  "instructions":[{"type","name","threads","operations_per_s"}],
//  "latencies":[{"level","bytes","ns"}],"gemm":[{"isa","dtype","rules"}],
//  "barrier_ns","fork_join_ns","wake_ns","distances":[{"cpus","one_way_ns"}],
//  "missing":[{"what","why"}]}; figures not measured are null or left out, and named in "missing".
Json ToJson(const ProbeResult& result);

// The same as text, in at most 100 columns. `colour`: with ANSI escapes.
std::string Draw(const ProbeResult& result, bool colour);

}  // namespace pinion::harness
