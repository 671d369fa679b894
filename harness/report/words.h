#pragma once

#include <string>
#include <vector>

#include "harness/report/figures.h"
#include "harness/report/results.h"

// Verdicts in words, the same in report.md and report.html.

namespace pinion::harness {

// "threads_bind=0-1, isa=avx2", or "the defaults".
std::string SettingsText(const Candidate& candidate);

// Whether there was enough data to recommend anything, even the defaults.
bool IsDecided(const Verdict& verdict);

// A verdict in plain words: the recommendation, the gain and the evidence.
struct Words {
  std::string headline;    // "threads_bind=0-1" or "No difference found: keep the defaults"
  std::string gain;        // "8.2 % [6.1, 10.3] more tokens per second"; empty without a winner
  std::string confidence;  // interval, rounds, confirmation
  std::string floor;       // "differences below 2.1 % cannot be resolved here"
  std::string runner_up;   // the next best and how far behind, if known; empty without a winner
  std::string tied;        // "Not distinguishable from it: ..."; may be empty
};
Words InWords(const Results& results, const Verdict& verdict);

// "2 threads, 3.1 GiB of peak memory, ready after 1.5 s"; empty before any trial.
std::string Costs(const Candidate& candidate);

// The report's first sentence, over all objectives.
std::string Answer(const Results& results);

// The evidence for its recommendation: "Confirmed in 6 fresh rounds; nothing else comes within 5 %
// of it. With 8 clients 95 % of first tokens arrive within 1.63 s (defaults: 2.32 s)."; empty if
// only the defaults are recommended.
std::string Support(const Results& results);

// One figure that a user can expect of a candidate.
struct Figure {
  std::string name;  // "output", "time to first token"
  const MetricInfo* metric;
  const Series* series;
};
std::vector<Figure> FiguresOf(const Candidate& candidate, Objective objective);

// "AMD EPYC 9654, 96 cores, 192 CPUs, 2 NUMA nodes", from the fingerprint.
std::string MachineLine(const Results& results);

}  // namespace pinion::harness
