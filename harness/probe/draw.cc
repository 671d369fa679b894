// The text output of `pinion probe`: a section per kind of limit, a line per figure.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "engine/base/strings.h"
#include "harness/probe/probe.h"
#include "harness/topo/styled_text.h"

namespace pinion::harness {
namespace {

constexpr size_t kLabelColumns = 28, kNumberColumns = 14, kBarColumns = 40;
constexpr size_t kTextColumns = 96;

// Three significant digits.
std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? "%.2f" : value < 100 ? "%.1f" : "%.0f", value);
  return text;
}

std::string Threads(size_t count) { return StrCat(count, count == 1 ? " thread" : " threads"); }

class Drawing {
 public:
  Drawing(const ProbeResult& result, bool colour) : result_(result), colour_(colour) {}

  std::string Draw() {
    Put(Line().Add(result_.machine.name, Style::kBold));
    Put(Line().Add(StrCat(Threads(Most()), ", cpu ", FormatCpuList(result_.plan.ranks[0].cpus),
                          " · measured in ", Number(result_.elapsed_s), " s")));
    Memory();
    Nodes();
    Caches();
    Latencies();
    Arithmetic();
    GemmKernels();
    BetweenThreads();
    NotMeasured();
    return std::move(text_);
  }

 private:
  StyledText Line() const { return StyledText(colour_); }
  void Put(const StyledText& line) { text_ += line.text() + "\n"; }
  size_t Most() const { return static_cast<size_t>(result_.plan.total_threads()); }

  void Heading(const std::string& title, const std::string& unit) {
    text_ += "\n";
    Put(Line().Add(title, Style::kBold).Add("  " + unit, Style::kDim));
  }

  static void AddNumber(StyledText& line, const std::string& text, Style style = Style::kPlain) {
    const size_t width = DisplayWidth(text);
    line.Pad(line.width() + (width < kNumberColumns ? kNumberColumns - width : 1)).Add(text, style);
  }

  void Memory() {
    Heading("memory, read", "GB/s");
    double most = 0;
    for (const ReadRate& rate : result_.reads) most = std::max(most, rate.bytes_per_s);
    for (const ReadRate& rate : result_.reads) {
      StyledText line = Line();
      line.Add("  " + Threads(rate.cpus.size())).Pad(kLabelColumns);
      AddNumber(line, Number(rate.bytes_per_s / 1e9));
      std::string bar;
      const int64_t length = std::lround(kBarColumns * rate.bytes_per_s / most);
      for (int64_t i = 0; i < length; ++i) bar += "▇";
      Put(line.Add("   ").Add(bar, Style::kRank));
    }
  }

  // One line per node whose threads read, one column per node that is read. Left out for a single
  // node, whose figures are shown already.
  void Nodes() {
    if (result_.nodes.size() < 2) return;
    Heading("memory, node by node", "GB/s");
    std::map<int, std::map<int, double>> rates;
    for (const NodeRate& rate : result_.nodes)
      rates[rate.cpu_node][rate.memory_node] = rate.bytes_per_s;
    StyledText header = Line();
    header.Pad(kLabelColumns);
    for (const auto& [node, ignored] : rates)
      AddNumber(header, StrCat("memory ", node), Style::kDim);
    Put(header);
    for (const auto& [node, row] : rates) {
      StyledText line = Line();
      line.Add(StrCat("  cores of node ", node)).Pad(kLabelColumns);
      for (const auto& [memory, rate] : row) AddNumber(line, Number(rate / 1e9));
      Put(line);
    }
  }

  // A table with a column for one thread and one for all.
  using Row = std::map<size_t, double>;  // by threads
  void Columns() {
    StyledText line = Line();
    line.Pad(kLabelColumns);
    AddNumber(line, Threads(1), Style::kDim);
    if (Most() > 1) AddNumber(line, Threads(Most()), Style::kDim);
    Put(line);
  }
  void PutRow(const std::string& label, const Row& row, double scale) {
    StyledText line = Line();
    line.Add("  " + label).Pad(kLabelColumns);
    for (size_t threads : Most() > 1 ? std::vector<size_t>{1, Most()} : std::vector<size_t>{1}) {
      const auto found = row.find(threads);
      AddNumber(line, found == row.end() ? "-" : Number(found->second / scale));
    }
    Put(line);
  }

  void Caches() {
    if (result_.caches.empty()) return;
    Heading("caches, read", "GB/s");
    Columns();
    std::map<int, Row> rows;
    std::map<int, uint64_t> sizes;
    for (const CacheRate& rate : result_.caches) {
      rows[rate.level][static_cast<size_t>(rate.threads)] = rate.bytes_per_s;
      sizes[rate.level] = rate.cache_bytes;
    }
    for (const auto& [level, row] : rows)
      PutRow(StrCat("L", level, ", ", FormatBytes(sizes[level])), row, 1e9);
  }

  void Latencies() {
    Heading("latency", "");
    for (const Latency& latency : result_.latencies)
      PutTime(latency.level > 0 ? StrCat("L", latency.level) : "memory", latency.ns,
              StrCat("random lines of ", FormatBytes(latency.bytes)));
  }

  // Only instructions that were measured; the others are listed as missing.
  void Instructions() {
    Heading("single instructions", "1e9 operations/s");
    Columns();
    std::map<std::string, Row> rows;
    std::vector<std::string> order;
    for (const InstructionRate& rate : result_.instructions) {
      if (rows.find(rate.name) == rows.end()) order.push_back(rate.name);
      rows[rate.name][static_cast<size_t>(rate.threads)] = rate.operations_per_s;
    }
    for (const std::string& name : order) PutRow(name, rows[name], 1e9);
  }

  void GemmKernels() {
    Heading("gemm kernels", "by rows, as --gemm-kernel takes them");
    for (const GemmChoice& choice : result_.gemm)
      Put(Line()
              .Add(StrCat("  ", kernels::Name(choice.dtype)))
              .Pad(kLabelColumns)
              .Add("  " + choice.rules));
  }

  void Arithmetic() {
    Heading("multiply-adds", "1e9 operations/s");
    Columns();
    std::map<std::pair<kernels::Isa, std::string>, Row> compute;
    for (const ComputeRate& rate : result_.compute)
      compute[{rate.isa, kernels::Name(rate.dtype)}][static_cast<size_t>(rate.threads)] =
          rate.flops_per_s;
    for (const Int8Rate& rate : result_.int8)
      compute[{rate.isa, "int8"}][static_cast<size_t>(rate.threads)] = rate.operations_per_s;
    for (const auto& [key, row] : compute)
      PutRow(StrCat(kernels::Name(key.first), " ", key.second), row, 1e9);
    if (!result_.instructions.empty()) Instructions();
    Heading("exponentials, float32", "1e9/s");
    Columns();
    std::map<kernels::Isa, Row> exps;
    for (const ExpRate& rate : result_.exps)
      exps[rate.isa][static_cast<size_t>(rate.threads)] = rate.per_s;
    for (const auto& [isa, row] : exps) PutRow(kernels::Name(isa), row, 1e9);
  }

  void PutTime(const std::string& label, double ns, const std::string& note = "") {
    StyledText line = Line();
    line.Add("  " + label).Pad(kLabelColumns);
    AddNumber(line, ns < 10'000 ? Number(ns) + " ns" : Number(ns / 1e3) + " µs");
    if (!note.empty()) line.Add("   " + note, Style::kDim);
    Put(line);
  }

  void BetweenThreads() {
    if (!result_.barrier_ns) return;
    Heading("between threads", "");
    PutTime("spin barrier", *result_.barrier_ns, Threads(Most()));
    PutTime("fork and join", *result_.fork_join_ns, Threads(Most()));
    PutTime("wake-up", *result_.wake_ns, "of a thread asleep in the kernel, median");
    std::vector<Distance> sorted = result_.distances;
    std::sort(sorted.begin(), sorted.end(),
              [](const Distance& a, const Distance& b) { return a.one_way_ns < b.one_way_ns; });
    const auto put = [&](const char* label, const Distance& distance) {
      PutTime(label, distance.one_way_ns,
              StrCat("cpu ", distance.cpu, " to ", distance.other_cpu, ", a cache line one way"));
    };
    if (sorted.size() == 1) return put("core to core", sorted[0]);
    put("nearest cores", sorted.front());
    put("median", sorted[sorted.size() / 2]);
    put("farthest cores", sorted.back());
  }

  void NotMeasured() {
    Heading("not measured", "");
    for (const MissingFigure& missing : result_.missing) {
      StyledText line = Line();
      line.Add("  " + missing.what);
      if (line.width() + 3 > kLabelColumns) {
        Put(line);
        line = Line();
      }
      line.Pad(kLabelColumns).Add(" ");
      bool first = true;
      for (const std::string& word : Split(missing.why, ' ')) {
        if (!first && line.width() + 1 + DisplayWidth(word) > kTextColumns) {
          Put(line);
          line = Line();
          line.Pad(kLabelColumns);
        }
        line.Add(" " + word, Style::kDim);
        first = false;
      }
      Put(line);
    }
  }

  const ProbeResult& result_;
  const bool colour_;
  std::string text_;
};

}  // namespace

std::string Draw(const ProbeResult& result, bool colour) { return Drawing(result, colour).Draw(); }

}  // namespace pinion::harness
