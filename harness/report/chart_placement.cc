// The machine's CPUs and the ranks that compute on them.

#include <map>

#include "engine/base/json_lists.h"
#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/report/charts.h"
#include "harness/report/words.h"

namespace pinion::harness {
namespace {

// {"cpu_list":"0-3,8"} -> 0,1,2,3,8.
std::vector<int> CpusOf(const Json& node) {
  return ParseCpuList(TextAt(node, "cpu_list")).value_or(std::vector<int>{});
}

// The candidate to draw: the ranking objective's recommendation, else the defaults.
const Candidate* Drawn(const Results& results) {
  const Verdict* verdict = results.FindVerdict(RankingObjective(results));
  const Candidate* candidate = verdict ? results.Find(verdict->recommended) : nullptr;
  return candidate ? candidate : results.Find(0);
}

// CPU -> "rank 0" or "front end".
std::map<int, std::string> Workers(const Plan& plan) {
  std::map<int, std::string> workers;
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank)
    for (const int cpu : plan.ranks[rank].cpus) workers[cpu] = StrCat("rank ", rank);
  for (const int cpu : plan.frontend_cpus) workers.emplace(cpu, "front end");
  return workers;
}

}  // namespace

Chart PlacementChart(const Results& results) {
  Chart chart{"placement", "Thread placement", "", Json::MakeArray(), ""};
  const Candidate* candidate = Drawn(results);
  const Json::Array& nodes = ItemsOf(results.machine, "nodes");
  const auto workers = candidate ? Workers(candidate->plan) : std::map<int, std::string>();
  if (workers.empty() || nodes.empty())
    return Absent(chart, candidate && candidate->threads > 0
                             ? "no thread is bound to a CPU by " + SettingsText(*candidate)
                             : "no engine has reported its plan");
  const std::vector<int> allowed = IntegersIn(results.budget.Find("cpus"));
  size_t cpus = 0, computing = 0;
  for (const Json& node : nodes) {
    const Json* id = node.Find("id");
    int column = 0;
    for (const int cpu : CpusOf(node)) {
      const auto worker = workers.find(cpu);
      const bool may = std::find(allowed.begin(), allowed.end(), cpu) != allowed.end();
      const std::string worker_name = worker != workers.end() ? worker->second
                                      : may                   ? "idle"
                                                              : "not allowed";
      ++cpus;
      computing += worker_name.starts_with("rank") ? 1 : 0;
      chart.values.Append(Json::Object{{"cpu", StrCat(cpu)},
                                       {"column", column % 16},
                                       {"row", column / 16},
                                       {"node", StrCat("node ", id ? id->Dump() : "?")},
                                       {"worker", worker_name},
                                       {"busy", worker != workers.end()}});
      ++column;
    }
  }
  chart.conclusion = StrCat(SettingsText(*candidate), ": ", computing, " of ", Counted(cpus, "CPU"),
                            " compute, on ", Counted(nodes.size(), "NUMA node"), ".");
  return chart;
}

}  // namespace pinion::harness
