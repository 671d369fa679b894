#include "harness/topo/draw.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "engine/host/cores.h"
#include "harness/topo/styled_text.h"

namespace pinion::harness {
namespace {

constexpr size_t kCoreColumns = 64;  // most for the marks of one row; the CPU numbers follow

// The mark of one logical CPU by its use, and its style.
struct Mark {
  std::string text = "×";
  Style style = Style::kDim;
  int rank = 0;
};

std::string RankMark(int rank) {
  static constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  const auto index = static_cast<size_t>(rank);
  return index < kDigits.size() ? std::string(1, kDigits[index]) : "#";
}

std::map<int, Mark> MarksOf(const Topology& topology) {
  std::map<int, Mark> marks;
  for (const Cpu& cpu : topology.machine.cpus) marks[cpu.id] = {};
  const bool floating = topology.plan.ranks[0].cpus.empty();
  for (int cpu : topology.budget.cpus)
    marks[cpu] = floating ? Mark{"*", Style::kRank, 0} : Mark{"·", Style::kDim, 0};
  for (const RankPlan& rank : topology.plan.ranks)
    for (int cpu : rank.cpus) marks[cpu] = {RankMark(rank.rank), Style::kRank, rank.rank};
  for (int cpu : topology.plan.frontend_cpus) marks[cpu] = {"F", Style::kFrontend, 0};
  return marks;
}

// All CPUs of one core, allowed or not, by sibling.
using CoreCpus = std::vector<Cpu>;

std::vector<CoreCpus> CoresOf(const Machine& machine, int package, int node) {
  std::map<int, CoreCpus> by_core;
  for (const Cpu& cpu : machine.cpus)
    if (cpu.package == package && cpu.node == node) by_core[cpu.core].push_back(cpu);
  std::vector<CoreCpus> cores;
  for (auto& [number, cpus] : by_core) {
    std::sort(cpus.begin(), cpus.end(),
              [](const Cpu& a, const Cpu& b) { return a.sibling < b.sibling; });
    cores.push_back(std::move(cpus));
  }
  std::sort(cores.begin(), cores.end(), [](const CoreCpus& a, const CoreCpus& b) {
    return std::tie(a[0].l3, a[0].id) < std::tie(b[0].l3, b[0].id);
  });
  return cores;
}

template <typename Member>
std::set<int> Distinct(const std::vector<Cpu>& cpus, Member member) {
  std::set<int> values;
  for (const Cpu& cpu : cpus) values.insert(cpu.*member);
  return values;
}

class Drawing {
 public:
  Drawing(const Topology& topology, bool colour)
      : topology_(topology),
        machine_(topology.machine),
        colour_(colour),
        marks_(MarksOf(topology)) {}

  std::string Draw() {
    Title();
    Sockets();
    MemoryOnlyNodes();
    Legend();
    BudgetLines();
    PlanLines();
    ModelLines();
    return std::move(text_);
  }

 private:
  StyledText Line() const { return StyledText(colour_); }
  void Put(const StyledText& line) { text_ += line.text() + "\n"; }

  void Title() {
    const auto& cpus = machine_.cpus;
    Put(Line().Add(machine_.this_system ? machine_.name : StrCat("described: ", machine_.name),
                   Style::kBold));
    Put(Line().Add(StrCat(Counted(Distinct(cpus, &Cpu::package).size(), "socket"), " · ",
                          Counted(machine_.nodes.size(), "NUMA node"), " · ",
                          Counted(Distinct(cpus, &Cpu::core).size(), "core"), " · ",
                          Counted(cpus.size(), "logical CPU"))));
    text_ += "\n";
  }

  // One row of marks and the numbers of its CPUs.
  struct Row {
    StyledText marks;
    std::vector<int> ids;
  };

  void AppendCore(Row& row, const CoreCpus& core) const {
    for (const Cpu& cpu : core) {
      const Mark& mark = marks_.at(cpu.id);
      row.marks.Add(mark.text, mark.style, mark.rank);
      row.ids.push_back(cpu.id);
    }
    row.marks.Add(" ");
  }

  // Cores with a bar between two L3 domains, as many whole domains as fit in kCoreColumns; a
  // domain that is wider than that is broken into even rows.
  std::vector<Row> Rows(const std::vector<CoreCpus>& cores) const {
    std::vector<Row> rows;
    for (size_t begin = 0, end; begin < cores.size(); begin = end) {
      end = begin;
      size_t columns = 0;
      for (; end < cores.size() && cores[end][0].l3 == cores[begin][0].l3; ++end)
        columns += cores[end].size() + 1;
      const size_t rows_needed = (columns + kCoreColumns - 1) / kCoreColumns;
      const size_t per_row = (end - begin + rows_needed - 1) / rows_needed;
      const bool beside = !rows.empty() && rows_needed == 1 &&
                          rows.back().marks.width() + 2 + columns <= kCoreColumns;
      for (size_t i = begin; i < end; ++i) {
        if (i == begin && beside)
          rows.back().marks.Add("│ ", Style::kDim);
        else if ((i - begin) % per_row == 0)
          rows.push_back({Line(), {}});
        AppendCore(rows.back(), cores[i]);
      }
    }
    return rows;
  }

  StyledText NodeLine(const NumaNode& node, const std::vector<CoreCpus>& cores) const {
    std::set<int> l3s;
    for (const CoreCpus& core : cores) l3s.insert(core[0].l3);
    StyledText line = Line();
    line.Add(StrCat("node ", node.id), Style::kBold);
    line.Add(StrCat(" · ", FormatBytes(node.memory_bytes)));
    if (!node.memory_allowed) line.Add(" (not allowed)", Style::kWarning);
    if (machine_.l3_bytes > 0)
      line.Add(StrCat(" · ", l3s.size() > 1 ? StrCat(l3s.size(), " × ") : "", "L3 ",
                      FormatBytes(machine_.l3_bytes)));
    line.Add(StrCat(" · ", Counted(cores.size(), "core")));
    return line;
  }

  // A socket's nodes, collected before the width of the widest socket is known.
  struct NodePicture {
    StyledText title;
    std::vector<Row> rows;
  };

  std::vector<NodePicture> NodesOf(int package) const {
    std::vector<NodePicture> nodes;
    for (const NumaNode& node : machine_.nodes) {
      const std::vector<CoreCpus> cores = CoresOf(machine_, package, node.id);
      if (!cores.empty()) nodes.push_back({NodeLine(node, cores), Rows(cores)});
    }
    return nodes;
  }

  void Sockets() {
    std::map<int, std::vector<NodePicture>> sockets;
    size_t marks_width = 0;
    for (int package : Distinct(machine_.cpus, &Cpu::package)) {
      sockets[package] = NodesOf(package);
      for (const NodePicture& node : sockets[package])
        for (const Row& row : node.rows) marks_width = std::max(marks_width, row.marks.width());
    }
    std::map<int, std::vector<StyledText>> lines_of;
    size_t width = 0;
    for (auto& [package, nodes] : sockets) {
      auto& lines = lines_of[package] = Lines(nodes, marks_width);
      for (const StyledText& line : lines) width = std::max(width, line.width());
    }
    for (const auto& [package, lines] : lines_of) Box(StrCat("socket ", package), lines, width);
  }

  std::vector<StyledText> Lines(std::vector<NodePicture>& nodes, size_t marks_width) const {
    std::vector<StyledText> lines;
    for (NodePicture& node : nodes) {
      lines.push_back(std::move(node.title));
      for (Row& row : node.rows) {
        std::sort(row.ids.begin(), row.ids.end());
        StyledText line = Line();
        line.Add("  ").Append(row.marks).Pad(marks_width + 4);
        lines.push_back(line.Add(StrCat("cpu ", FormatCpuList(row.ids)), Style::kDim));
      }
    }
    return lines;
  }

  void Box(const std::string& title, const std::vector<StyledText>& lines, size_t width) {
    const auto bar = [](size_t count) {
      std::string text;
      while (count-- > 0) text += "─";
      return text;
    };
    width = std::max(width, title.size() + 1);
    Put(Line()
            .Add("╭─ ", Style::kDim)
            .Add(title)
            .Add(StrCat(" ", bar(width - title.size() - 1), "╮"), Style::kDim));
    for (const StyledText& line : lines)
      Put(Line().Add("│ ", Style::kDim).Append(line).Pad(width + 3).Add("│", Style::kDim));
    Put(Line().Add(StrCat("╰", bar(width + 2), "╯"), Style::kDim));
  }

  void MemoryOnlyNodes() {
    for (const NumaNode& node : machine_.nodes)
      if (node.cpus.empty())
        Put(Line()
                .Add(StrCat("node ", node.id), Style::kBold)
                .Add(StrCat(" · ", FormatBytes(node.memory_bytes), " · no CPUs")));
  }

  bool AnyMark(std::string_view text) const {
    return std::any_of(marks_.begin(), marks_.end(),
                       [&](const auto& entry) { return entry.second.text == text; });
  }

  void Legend() {
    const size_t ranks = topology_.plan.ranks.size();
    const std::string last = RankMark(static_cast<int>(ranks) - 1);
    StyledText line = Line();
    const auto entry = [&](const std::string& mark, Style style, const std::string& meaning) {
      line.Add(line.width() > 0 ? "   " : "  ").Add(mark, style).Add(" " + meaning);
    };
    if (AnyMark("0")) entry(ranks > 1 ? "0-" + last : "0", Style::kRank, "rank that computes here");
    if (AnyMark("*")) entry("*", Style::kRank, "any rank's threads, which are not pinned");
    if (AnyMark("F")) entry("F", Style::kFrontend, "reserved for the front end");
    if (AnyMark("·")) entry("·", Style::kDim, "allowed, idle");
    if (AnyMark("×")) entry("×", Style::kDim, "not allowed");
    Put(line);
    text_ += "\n";
  }

  void Paragraph(const std::string& label, const std::string& text, Style style = Style::kPlain) {
    text_ += harness::Paragraph(label, text, colour_, style);
  }

  void BudgetLines() {
    const Budget& budget = topology_.budget;
    Paragraph("budget", StrCat(Counted(budget.cpus.size(), "CPU"), ", at most ",
                               Counted(static_cast<size_t>(budget.max_threads), "thread"), ", ",
                               FormatBytes(budget.memory_available_bytes), " of ",
                               FormatBytes(budget.memory_total_bytes), " memory free"));
    for (const std::string& reason : budget.reasons) Paragraph("", reason, Style::kDim);
    std::vector<int> cpus;
    for (const Cpu& cpu : machine_.cpus) cpus.push_back(cpu.id);
    if (const std::string kinds = DescribeKinds(machine_, cpus); !kinds.empty())
      Paragraph("kinds", kinds);
    Paragraph("isa", Join(topology_.isa, ", ") + (machine_.this_system ? "" : " (of this CPU)"));
    if (!topology_.amx_refusal.empty())
      Paragraph("", "AMX is left unused: " + topology_.amx_refusal, Style::kDim);
  }

  // A rank's engine and stage, as far as there are several.
  std::string PlaceText(const RankPlace& place) const {
    std::string text;
    if (topology_.replicas > 1) text = StrCat("engine ", place.engine, " · ");
    if (topology_.stages > 1)
      text += StrCat("stage ", place.stage + 1, " of ", topology_.stages, " · ");
    return text;
  }

  void PlanLines() {
    const Plan& plan = topology_.plan;
    for (const RankPlan& rank : plan.ranks) {
      const std::string where =
          rank.cpus.empty() ? "unpinned" : StrCat("cpu ", FormatCpuList(rank.cpus));
      Paragraph(StrCat("rank ", rank.rank),
                StrCat(PlaceText(topology_.places[static_cast<size_t>(rank.rank)]),
                       Counted(static_cast<size_t>(rank.threads), "thread"), " · ",
                       rank.nodes.size() == 1 ? "node " : "nodes ", FormatCpuList(rank.nodes),
                       " · ", where));
    }
    Paragraph("front end", plan.frontend_cpus.empty()
                               ? "no CPUs of its own"
                               : StrCat("cpu ", FormatCpuList(plan.frontend_cpus)));
    for (const std::string& reason : plan.reasons)
      if (reason.rfind("rank ", 0) != 0) Paragraph("", reason, Style::kDim);
    for (const std::string& warning : plan.warnings) Paragraph("warning", warning, Style::kWarning);
  }

  void ModelLines() {
    if (!topology_.model) return;
    for (const auto& [label, text] : Describe(*topology_.model)) Paragraph(label, text);
    if (const std::string& refusal = topology_.model->refusal; !refusal.empty())
      Paragraph("warning", refusal, Style::kWarning);
  }

  const Topology& topology_;
  const Machine& machine_;
  const bool colour_;
  const std::map<int, Mark> marks_;
  std::string text_;
};

}  // namespace

std::string DrawTopology(const Topology& topology, bool colour) {
  return Drawing(topology, colour).Draw();
}

}  // namespace pinion::harness
