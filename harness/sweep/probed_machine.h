#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion::harness {

// Peak arithmetic of a number of threads; a multiply-add counts as two operations.
struct Peak {
  double flops_per_s = 0;
  double int8_ops_per_s = 0;
};

// A machine's ceilings, from the JSON of `pinion probe`.
class ProbedMachine {
 public:
  // Errors (kUsage): not a probe's output, or one without bandwidth or arithmetic.
  static Result<ProbedMachine> Parse(const Json& probe);

  // Linear between the measured numbers of threads; beyond them, the value of the nearest one.
  double ReadBytesPerS(int threads) const;
  // A bound that no number of threads can exceed: the best measurement times kMargin.
  double ReadBytesPerSAtMost() const;
  // In proportion to the threads, since cores compute on their own. Floating point: of the fastest
  // type that `isa` was measured with and `dtype` can use; error: the probe has no such ISA path.
  // int8: of that path's own instruction; if it has none, or the probe lacks it, as for floats.
  Result<Peak> PeakOf(const std::string& isa, const std::string& dtype, int threads) const;
  // A bound that `threads` threads cannot exceed on that path in any type: the best rate per
  // thread, times kMargin. If the probe lacks int8 by path, the best of all instructions counts.
  Result<Peak> PeakAtMost(const std::string& isa, int threads) const;
  // How far a ceiling may lie above the best of a probe's short samples: machines drift by 15 %,
  // and the samples themselves may all have been disturbed a little.
  static constexpr double kMargin = 1.25;
  // The measured ISA paths, weakest first.
  std::vector<std::string> Isas() const;

 private:
  struct Compute {
    std::string isa, dtype;  // "int8": products that stay in integers
    int threads = 0;
    double per_s = 0;

    double per_thread() const { return per_s / threads; }
  };
  double BestPerThread(const std::string& isa,
                       std::initializer_list<std::string_view> dtypes) const;
  Result<double> FlopsPerThread(const std::string& isa, const std::string& dtype) const;

  std::vector<std::pair<int, double>> reads_;  // threads, bytes/s; ascending
  std::vector<Compute> computes_;
  double best_int8_ops_per_s_ = 0;  // of one thread, by any instruction
};

}  // namespace pinion::harness
