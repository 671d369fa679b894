#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion::harness {

// What so many threads can compute at most, a multiply-add counted as two.
struct Peak {
  double flops_per_s = 0;
  double int8_ops_per_s = 0;
};

// A machine's ceilings, from the JSON of `pinion probe`.
class ProbedMachine {
 public:
  // Errors (kUsage): not a probe's output, no bandwidth or no arithmetic in it.
  static Result<ProbedMachine> Parse(const Json& probe);

  // Linear between the numbers of threads that were measured; beyond them, as at the nearest one.
  double ReadBytesPerS(int threads) const;
  // More than any number of threads can read: the best of all that was measured, and kMargin more.
  double ReadBytesPerSAtMost() const;
  // In proportion to the threads, since cores compute on their own. Floating point: of the fastest
  // type that `isa` was measured with and `dtype` can use; error: the probe has no such ISA path.
  // int8: of that path's own instruction; where it has none, or the probe did not tell, as floats.
  Result<Peak> PeakOf(const std::string& isa, const std::string& dtype, int threads) const;
  // More than so many threads can compute on that path, of whatever type: the best per thread, and
  // kMargin more. A probe that tells no path's int8 leaves the best of all instructions.
  Result<Peak> PeakAtMost(const std::string& isa, int threads) const;
  // What a ceiling may be above the best of a probe's short samples: machines drift by 15 %, and
  // the samples themselves may all have been disturbed a little.
  static constexpr double kMargin = 1.25;
  // ISA paths that were measured, weakest first.
  std::vector<std::string> Isas() const;

 private:
  struct Compute {
    std::string isa, dtype;  // "int8": of products that stay in integers
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
