#include "harness/sweep/probed_machine.h"

#include <algorithm>
#include <set>

#include "engine/base/strings.h"
#include "kernels/isa.h"

namespace pinion::harness {
namespace {

constexpr char kInt8[] = "int8";

// Calls `take` on every item; a probe of another version may lack the list.
template <typename Take>
Status ForEach(const Json& probe, const char* key, Take take) {
  const Json* list = probe.Find(key);
  if (!list || !list->is_array()) return {};
  for (const Json& one : list->array()) PINION_TRY(take(one));
  return {};
}

Status CheckHas(const Json& probe, const char* key) {
  const Json* list = probe.Find(key);
  if (list && list->is_array() && !list->array().empty()) return {};
  return Fail(ErrorCode::kUsage,
              StrCat("it has no '", key, "': give the output of `pinion probe --out FILE`"));
}

}  // namespace

Result<ProbedMachine> ProbedMachine::Parse(const Json& probe) {
  ProbedMachine machine;
  PINION_TRY(CheckHas(probe, "memory_read"));
  PINION_TRY(CheckHas(probe, "compute"));
  PINION_TRY(ForEach(probe, "memory_read", [&](const Json& one) -> Status {
    PINION_ASSIGN(const int threads, Require<int>(one, "threads"));
    PINION_ASSIGN(const double rate, Require<double>(one, "bytes_per_s"));
    machine.reads_.emplace_back(threads, rate);
    return {};
  }));
  const auto add = [&](const Json& one, std::string dtype, const char* rate) -> Status {
    Compute compute{"", std::move(dtype), 0, 0};
    PINION_ASSIGN(compute.isa, Require<std::string>(one, "isa"));
    PINION_ASSIGN(compute.threads, Require<int>(one, "threads"));
    PINION_ASSIGN(compute.per_s, Require<double>(one, rate));
    if (compute.threads > 0) machine.computes_.push_back(std::move(compute));
    return {};
  };
  PINION_TRY(ForEach(probe, "compute", [&](const Json& one) -> Status {
    PINION_ASSIGN(std::string dtype, Require<std::string>(one, "dtype"));
    return add(one, std::move(dtype), "flops_per_s");
  }));
  PINION_TRY(
      ForEach(probe, "int8", [&](const Json& one) { return add(one, kInt8, "operations_per_s"); }));
  PINION_TRY(ForEach(probe, "instructions", [&](const Json& one) -> Status {
    PINION_ASSIGN(const std::string type, Require<std::string>(one, "type"));
    PINION_ASSIGN(const int threads, Require<int>(one, "threads"));
    PINION_ASSIGN(const double rate, Require<double>(one, "operations_per_s"));
    if (type == kInt8 && threads > 0)
      machine.best_int8_ops_per_s_ = std::max(machine.best_int8_ops_per_s_, rate / threads);
    return {};
  }));
  std::sort(machine.reads_.begin(), machine.reads_.end());
  return machine;
}

double ProbedMachine::ReadBytesPerS(int threads) const {
  if (threads <= reads_.front().first) return reads_.front().second;
  for (size_t i = 1; i < reads_.size(); ++i) {
    const auto& [few, slow] = reads_[i - 1];
    const auto& [many, fast] = reads_[i];
    if (threads <= many) return slow + (fast - slow) * (threads - few) / std::max(1, many - few);
  }
  return reads_.back().second;
}

double ProbedMachine::ReadBytesPerSAtMost() const {
  double most = 0;
  for (const auto& [threads, rate] : reads_) most = std::max(most, rate);
  return kMargin * most;
}

double ProbedMachine::BestPerThread(const std::string& isa,
                                    std::initializer_list<std::string_view> dtypes) const {
  double best = 0;
  for (const Compute& one : computes_)
    if (one.isa == isa && std::find(dtypes.begin(), dtypes.end(), one.dtype) != dtypes.end())
      best = std::max(best, one.per_thread());
  return best;
}

// bfloat16 and float16 may also be widened to float32; float32 has no alternative.
Result<double> ProbedMachine::FlopsPerThread(const std::string& isa,
                                             const std::string& dtype) const {
  const double best = BestPerThread(isa, {dtype, "float32"});
  if (best > 0) return best;
  return Fail(ErrorCode::kUsage, StrCat("the probe has not measured ISA path '", isa, "'; it has ",
                                        Join(Isas(), ", ")));
}

Result<Peak> ProbedMachine::PeakOf(const std::string& isa, const std::string& dtype,
                                   int threads) const {
  PINION_ASSIGN(const double flops, FlopsPerThread(isa, dtype));
  const double int8 = BestPerThread(isa, {kInt8});
  return Peak{flops * threads, (int8 > 0 ? int8 : flops) * threads};
}

Result<Peak> ProbedMachine::PeakAtMost(const std::string& isa, int threads) const {
  PINION_ASSIGN(double flops, FlopsPerThread(isa, "float32"));
  flops = std::max(flops, BestPerThread(isa, {"bfloat16", "float16"}));
  double int8 = BestPerThread(isa, {kInt8});
  if (int8 <= 0) int8 = best_int8_ops_per_s_;
  return Peak{kMargin * flops * threads, kMargin * std::max(flops, int8) * threads};
}

std::vector<std::string> ProbedMachine::Isas() const {
  std::set<kernels::Isa> found;
  for (const Compute& one : computes_)
    if (const auto isa = kernels::ParseIsa(one.isa)) found.insert(*isa);
  std::vector<std::string> names;
  for (const kernels::Isa isa : found) names.push_back(kernels::Name(isa));
  return names;
}

}  // namespace pinion::harness
