#pragma once

#include <string>
#include <vector>

#include "harness/report/figures.h"
#include "harness/report/results.h"

// Verdicts as people read them: the same words in report.md and report.html.

namespace pinion::harness {

// "threads_bind=0-1, isa=avx2", or "the defaults".
std::string SettingsText(const Candidate& candidate);

// What an objective maximises, in words.
const char* Goal(Objective objective);

// Whether there was enough data to recommend anything, be it the defaults.
bool IsDecided(const Verdict& verdict);

// A verdict in plain words: what to do, and how much it gives.
struct Words {
  std::string headline;    // "threads_bind=0-1" or "No difference found: keep the defaults"
  std::string gain;        // "8.2 % [6.1, 10.3] more tokens per second"; empty: none
  std::string confidence;  // interval, rounds, confirmation
  std::string floor;       // "differences below 2.1 % cannot be resolved here"
  std::string tied;        // "not told apart from it: ..."; may be empty
};
Words InWords(const Results& results, const Verdict& verdict);

// "2 threads, 3.1 GiB of memory at the peak, ready after 1.5 s"; empty before any trial.
std::string Costs(const Candidate& candidate);

// "Runner-up: isa=avx512, 3.1 % behind."; empty where there is none, or where it is tied and
// InWords has named it.
std::string RunnerUp(const Results& results, const Verdict& verdict, Objective objective);

// The report's first sentence, over all objectives.
std::string Answer(const Results& results);

// What its recommendation rests on: "Confirmed in 6 fresh rounds; nothing else comes within 5 % of
// it. With 8 clients 95 % of first tokens come within 1.63 s (defaults: 2.32 s)."; empty where
// nothing but the defaults is recommended.
std::string Support(const Results& results);

// The figures that an objective is about, of one candidate: what a person should expect.
struct Figure {
  std::string name;  // "output", "time to first token"
  const MetricInfo* metric;
  const Series* series;
};
std::vector<Figure> FiguresOf(const Candidate& candidate, Objective objective);

// "AMD EPYC 9654, 96 cores, 192 CPUs, 2 NUMA nodes", from the fingerprint.
std::string MachineLine(const Json& fingerprint);

}  // namespace pinion::harness
