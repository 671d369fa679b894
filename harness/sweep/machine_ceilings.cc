#include "harness/sweep/machine_ceilings.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <set>

#include "engine/base/json_lists.h"
#include "engine/base/strings.h"
#include "kernels/isa.h"

namespace pinion::harness {
namespace {

constexpr char kInt8[] = "int8";

// Calls `take` on every item; a probe of another version may lack the list.
template <typename Take>
Status ForEach(const Json& probe, const char* key, Take take) {
  for (const Json& one : ItemsOf(probe, key)) PINION_TRY(take(one));
  return {};
}

Status CheckHas(const Json& probe, const char* key) {
  if (!ItemsOf(probe, key).empty()) return {};
  return Fail(ErrorCode::kUsage,
              StrCat("it has no '", key, "': give the output of `pinion probe --out FILE`"));
}

// Operations of one core in a cycle, by its vector units: lanes x 2 ports x 2 of a multiply-add;
// VPDPBF16PS and VPDPBUSD multiply 2 and 4 pairs a lane; a tile product does 16 x 16 x 32 bfloat16
// or 16 x 16 x 64 int8 multiply-adds in 16 cycles.
struct Width {
  kernels::Isa isa;
  double float32, bfloat16, int8;
};
constexpr Width kWidths[] = {
    {kernels::Isa::kScalar, 4, 4, 4},         {kernels::Isa::kAvx2, 32, 32, 32},
    {kernels::Isa::kAvx2Vnni, 32, 32, 128},   {kernels::Isa::kAvx512, 64, 64, 64},
    {kernels::Isa::kAvx512Vnni, 64, 64, 256}, {kernels::Isa::kAvx512Bf16, 64, 128, 256},
    {kernels::Isa::kAmx, 64, 1024, 2048}};

Result<Width> WidthOf(const std::string& name) {
  for (const Width& width : kWidths)
    if (name == kernels::Name(width.isa)) return width;
  return Fail(ErrorCode::kUsage, StrCat("no ISA path is called '", name, "'"));
}

double Total(const std::map<int, double>& parts) {
  double sum = 0;
  for (const auto& [key, part] : parts) sum += part;
  return sum;
}

// Physical cores of every node that has any.
std::map<int, std::set<int>> CoresByNode(const Machine& machine) {
  std::map<int, std::set<int>> cores;
  for (const Cpu& cpu : machine.cpus) cores[cpu.node].insert(cpu.core);
  return cores;
}

}  // namespace

Result<MachineCeilings> MachineCeilings::For(const Machine& machine, const Json& probe,
                                             const StatedCeilings& stated,
                                             const std::vector<std::string>& isas) {
  MachineCeilings ceilings;
  const bool probed = !probe.is_null();
  if (probed) {
    PINION_ASSIGN(ceilings, Parse(probe));
  }
  if (!probed && !stated.node_bytes_per_s && !stated.socket_bytes_per_s)
    return Fail(ErrorCode::kUsage,
                "--core-peak alone predicts nothing: add --node-bandwidth or --memory-channels");
  ceilings.SetNodes(machine, stated);
  if (!probed || stated.core_flops_per_s) PINION_TRY(ceilings.SetCores(stated, isas));
  ceilings.from_ = !probed        ? "stated"
                   : stated.any() ? "stated, the rest probed elsewhere and scaled by cores"
                                  : "probed elsewhere and scaled by cores";
  return ceilings;
}

void MachineCeilings::SetNodes(const Machine& machine, const StatedCeilings& stated) {
  const auto cores = CoresByNode(machine);
  std::set<int> sockets;
  for (const Cpu& cpu : machine.cpus) sockets.insert(cpu.package);
  const double nodes_a_socket =
      static_cast<double>(cores.size()) / static_cast<double>(std::max<size_t>(1, sockets.size()));
  for (const auto& [node, of_node] : cores) {
    double rate = 0;
    if (stated.node_bytes_per_s)
      rate = *stated.node_bytes_per_s;
    else if (stated.socket_bytes_per_s)
      rate = *stated.socket_bytes_per_s / nodes_a_socket;
    else
      rate = reads_.back().second / std::max(1, reads_.back().first) *
             static_cast<double>(of_node.size());
    nodes_[node] = rate;
  }
}

Status MachineCeilings::SetCores(const StatedCeilings& stated,
                                 const std::vector<std::string>& isas) {
  PINION_ASSIGN(const Width best, WidthOf(isas.empty() ? "" : isas.back()));
  const double hz = stated.core_flops_per_s ? *stated.core_flops_per_s / best.bfloat16 : kClockHz;
  computes_.clear();
  best_int8_ops_per_s_ = 0;
  for (const std::string& isa : isas) {
    PINION_ASSIGN(const Width width, WidthOf(isa));
    computes_.push_back({isa, "float32", 1, width.float32 * hz});
    computes_.push_back({isa, "bfloat16", 1, width.bfloat16 * hz});
    computes_.push_back({isa, kInt8, 1, width.int8 * hz});
  }
  return {};
}

Result<MachineCeilings> MachineCeilings::Parse(const Json& probe) {
  MachineCeilings machine;
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
  machine.core_bytes_per_s_ =
      machine.reads_.front().second / std::max(1, machine.reads_.front().first);
  return machine;
}

double MachineCeilings::Measured(double threads) const {
  if (threads <= reads_.front().first) return reads_.front().second;
  for (size_t i = 1; i < reads_.size(); ++i) {
    const auto& [few, slow] = reads_[i - 1];
    const auto& [many, fast] = reads_[i];
    if (threads <= many) return slow + (fast - slow) * (threads - few) / std::max(1, many - few);
  }
  return reads_.back().second;
}

double MachineCeilings::ReadBytesPerS(const CoresOfNodes& cores) const {
  double all = 0, rate = 0;
  for (const auto& [node, here] : cores) {
    all += here;
    const auto limit = nodes_.find(node);
    if (limit != nodes_.end()) rate += std::min(here * core_bytes_per_s_, limit->second);
  }
  return nodes_.empty() ? Measured(all) : rate;
}

double MachineCeilings::ReadBytesPerSAtMost() const {
  double most = 0;
  for (const auto& [threads, rate] : reads_) most = std::max(most, rate);
  if (!nodes_.empty()) most = Total(nodes_);
  return kMargin * most;
}

double MachineCeilings::BestPerThread(const std::string& isa,
                                      std::initializer_list<std::string_view> dtypes) const {
  double best = 0;
  for (const Compute& one : computes_)
    if (one.isa == isa && std::find(dtypes.begin(), dtypes.end(), one.dtype) != dtypes.end())
      best = std::max(best, one.per_thread());
  return best;
}

// bfloat16 and float16 may also be widened to float32; float32 has no alternative.
Result<double> MachineCeilings::FlopsPerThread(const std::string& isa,
                                               const std::string& dtype) const {
  const double best = BestPerThread(isa, {dtype, "float32"});
  if (best > 0) return best;
  return Fail(ErrorCode::kUsage, StrCat("the probe has not measured ISA path '", isa, "'; it has ",
                                        Join(Isas(), ", ")));
}

Result<Peak> MachineCeilings::PeakOf(const std::string& isa, const std::string& dtype,
                                     double cores) const {
  PINION_ASSIGN(const double flops, FlopsPerThread(isa, dtype));
  const double int8 = BestPerThread(isa, {kInt8});
  return Peak{flops * cores, (int8 > 0 ? int8 : flops) * cores};
}

Result<Peak> MachineCeilings::PeakAtMost(const std::string& isa, double cores) const {
  PINION_ASSIGN(double flops, FlopsPerThread(isa, "float32"));
  flops = std::max(flops, BestPerThread(isa, {"bfloat16", "float16"}));
  double int8 = BestPerThread(isa, {kInt8});
  if (int8 <= 0) int8 = best_int8_ops_per_s_;
  return Peak{kMargin * flops * cores, kMargin * std::max(flops, int8) * cores};
}

std::vector<std::string> MachineCeilings::Isas() const {
  std::set<kernels::Isa> found;
  for (const Compute& one : computes_)
    if (const auto isa = kernels::ParseIsa(one.isa)) found.insert(*isa);
  std::vector<std::string> names;
  for (const kernels::Isa isa : found) names.emplace_back(kernels::Name(isa));
  return names;
}

Json MachineCeilings::Facts() const {
  Json facts = Json::MakeObject(), nodes = Json::MakeArray(), cores = Json::MakeObject();
  facts.Set("from", from_);
  facts.Set("read_bytes_per_s", nodes_.empty() ? reads_.back().second : Total(nodes_));
  facts.Set("core_read_bytes_per_s", core_bytes_per_s_);
  for (const auto& [node, rate] : nodes_)
    nodes.Append(Json::Object{{"id", node}, {"read_bytes_per_s", rate}});
  if (!nodes_.empty()) facts.Set("nodes", std::move(nodes));
  for (const std::string& isa : Isas()) {
    Json rates = Json::MakeObject();
    for (const Compute& one : computes_)
      if (one.isa == isa) rates.Set(one.dtype, one.per_thread());
    cores.Set(isa, std::move(rates));
  }
  facts.Set("core_ops_per_s", std::move(cores));
  return facts;
}

Result<double> ParseRate(const std::string& text, std::string_view unit, const std::string& what) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string_view rest = Trim(std::string_view(end));
  constexpr std::string_view kPrefixes = "KMGT";
  double scale = 1;
  if (const size_t power = rest.empty() ? std::string_view::npos
                                        : kPrefixes.find(static_cast<char>(std::toupper(rest[0])));
      power != std::string_view::npos) {
    for (size_t i = 0; i <= power; ++i) scale *= 1000;
    rest.remove_prefix(1);
  }
  if (rest.starts_with(unit)) rest.remove_prefix(unit.size());
  if (unit == "FLOP" && rest == "S") rest = {};  // FLOPS
  if (end != text.c_str() && std::isfinite(number) && number > 0 && (rest.empty() || rest == "/s"))
    return number * scale;
  return Fail(ErrorCode::kUsage,
              StrCat(what, " '", text, "' must have the form 300G", unit, "/s and be above 0"));
}

Result<double> ParseChannels(const std::string& text, const std::string& what) {
  constexpr double kBytesPerTransfer = 8, kMega = 1e6;
  const std::vector<std::string> parts = Split(text, 'x');
  if (parts.size() == 2) {
    const auto channels = ParseInt(parts[0], what), speed = ParseInt(parts[1], what);
    if (channels && speed && *channels > 0 && *speed > 0)
      return static_cast<double>(*channels) * static_cast<double>(*speed) * kMega *
             kBytesPerTransfer;
  }
  return Fail(
      ErrorCode::kUsage,
      StrCat(what, " '", text, "' must have the form 12x6400: channels of a socket x MT/s"));
}

}  // namespace pinion::harness
