#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/host/machine.h"

namespace pinion::harness {

// Peak arithmetic of a number of cores; a multiply-add counts as two operations.
struct Peak {
  double flops_per_s = 0;
  double int8_ops_per_s = 0;
};

// Cores that compute on each NUMA node, by its id.
using CoresOfNodes = std::map<int, double>;

// Ceilings that are stated, not measured; unset: not stated.
struct StatedCeilings {
  std::optional<double> node_bytes_per_s;    // read by the cores of a NUMA node from its memory
  std::optional<double> socket_bytes_per_s;  // the same of a socket, over all of its nodes
  std::optional<double> core_flops_per_s;    // of one core, bfloat16 on the fastest ISA path

  bool any() const { return node_bytes_per_s || socket_bytes_per_s || core_flops_per_s; }
};

// A machine's ceilings, from the JSON of `pinion probe` on it, or for a machine that nobody has
// probed.
class MachineCeilings {
 public:
  // Errors (kUsage): not a probe's output, or one without bandwidth or arithmetic.
  static Result<MachineCeilings> Parse(const Json& probe);

  // For another machine: stated ceilings come first, then those of `probe` (null: none), scaled
  // from the cores that it measured. A node's bandwidth is in proportion to its cores, and one core
  // reads and computes as fast as there. Without a probe, a core reads kCoreBytesPerS and computes
  // at the rate of its vector units at kClockHz on each of `isas`. Errors: Parse's; neither a probe
  // nor a stated bandwidth; an ISA path that does not exist.
  static Result<MachineCeilings> For(const Machine& machine, const Json& probe,
                                     const StatedCeilings& stated,
                                     const std::vector<std::string>& isas);
  // 16 cache lines of 64 bytes under way at a latency of 90 ns: line fill buffers of current cores.
  static constexpr double kCoreBytesPerS = 16 * 64 / 90e-9;
  static constexpr double kClockHz = 2e9;  // under wide vectors

  // With these cores. Of the probed machine: linear between the measured numbers of threads; beyond
  // them, the value of the nearest one. Of another machine: each node is limited by its cores or by
  // its memory.
  double ReadBytesPerS(const CoresOfNodes& cores) const;
  // A bound that no number of threads can exceed: the best measurement times kMargin.
  double ReadBytesPerSAtMost() const;
  // In proportion to the cores. Floating point: of the fastest type that `isa` was measured with
  // and `dtype` can use; error: the probe has no such ISA path. int8: of that path's own
  // instruction; if it has none, or the probe lacks it, as for floats.
  Result<Peak> PeakOf(const std::string& isa, const std::string& dtype, double cores) const;
  // A bound that `cores` cores cannot exceed on that path in any type: the best rate per core,
  // times kMargin. If the probe lacks int8 by path, the best of all instructions counts.
  Result<Peak> PeakAtMost(const std::string& isa, double cores) const;
  // How far a ceiling may lie above the best of a probe's short samples: machines drift by 15 %,
  // and the samples themselves may all have been disturbed a little.
  static constexpr double kMargin = 1.25;
  // The measured ISA paths, weakest first.
  std::vector<std::string> Isas() const;

  // {"from":"...","read_bytes_per_s","core_read_bytes_per_s","nodes":[{"id","read_bytes_per_s"}],
  //  "core_ops_per_s":{"avx512":{"float32":...}}}
  Json Facts() const;

 private:
  struct Compute {
    std::string isa, dtype;  // "int8": products that stay in integers
    int threads = 0;
    double per_s = 0;

    double per_thread() const { return per_s / threads; }
  };
  double Measured(double threads) const;
  double BestPerThread(const std::string& isa,
                       std::initializer_list<std::string_view> dtypes) const;
  Result<double> FlopsPerThread(const std::string& isa, const std::string& dtype) const;
  void SetNodes(const Machine& machine, const StatedCeilings& stated);
  Status SetCores(const StatedCeilings& stated, const std::vector<std::string>& isas);

  std::string from_ = "probed on this machine";
  std::vector<std::pair<int, double>> reads_;  // threads, bytes/s; ascending; empty: not probed
  std::map<int, double> nodes_;                // bytes/s of each; empty: as probed
  double core_bytes_per_s_ = kCoreBytesPerS;   // of one core alone
  std::vector<Compute> computes_;
  double best_int8_ops_per_s_ = 0;  // of one thread, by any instruction
};

// "300GB/s" or "120GFLOP/s" -> a number per second; `unit` ("B", "FLOP") and "/s" may be left out,
// prefixes are powers of 1000. Errors (kUsage) name `what`.
Result<double> ParseRate(const std::string& text, std::string_view unit, const std::string& what);
// "12x6400" -> bytes/s of that many channels at so many MT/s, 8 bytes a transfer.
Result<double> ParseChannels(const std::string& text, const std::string& what);

}  // namespace pinion::harness
