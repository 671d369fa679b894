#pragma once

#include <string>
#include <vector>

#include "harness/results/figures.h"
#include "harness/results/results.h"

// Verdicts in words, the same in report.md and report.html.

namespace pinion::harness {

// "threads_bind=0-1, isa=avx2", or "the defaults".
std::string SettingsText(const Candidate& candidate);

// SettingsText of a candidate of these results, or "candidate 7" if there is none of this id.
std::string NameOf(const Results& results, int candidate);

// Whether there was enough data to recommend anything, even the defaults.
bool IsDecided(const Verdict& verdict);

// The finding in one objective, in parts, so that objectives with the same advice or about the same
// configuration can be told in one sentence. Joined, they are the headline: "The defaults are best"
// ": " "isa=avx2 is" " " "26 % worse (16 to 30 %)".
struct Finding {
  std::string advice;     // "Use isa=avx2", "Keep the defaults", "Keep the defaults for now", ...
  std::string subject;    // "no difference was found", "7 of 9 others are worse, and the rest
                          // cannot be told ...", "isa=avx2 is"; empty with a winner
  std::string predicate;  // "26 % worse (16 to 30 %)"; may be empty
};
Finding FindingOf(const Results& results, const Verdict& verdict);

// A verdict in plain words: the recommendation, the gain and the evidence.
struct Words {
  std::string headline;  // "isa=avx2" if it won, else "Keep the defaults: no difference was found";
                         // of a pair "B is 26 % worse (16 to 30 %) than A"
  std::string gain;      // "8.2 % [6.1, 10.3] more tokens per second"; empty without a winner
  std::string confidence;  // interval, rounds, confirmation
  std::string floor;       // "differences below 2.1 % cannot be resolved here"
  std::string runner_up;   // the next best and how far behind, if known; empty without a winner
  std::string tied;        // "Not distinguishable from it: ..."; may be empty
};
Words InWords(const Results& results, const Verdict& verdict);

// The same words in a row, for programs and profiles: "Use isa=avx2: 8.2 % [6.1, 10.3] more tokens
// per second than the defaults; 96 % interval ... cannot be resolved here. Runner-up: ...".
std::string Sentence(const Results& results, const Verdict& verdict);

// "2 threads, 3.1 GiB of peak memory, ready after 1.5 s"; empty before any trial.
std::string Costs(const Candidate& candidate);

// Of a trial, on average: the median of events in few of the trials is 0. 0 without samples.
double MeanOf(const Series& series);
// "3", "0.24", "12": a mean of counts.
std::string MeanText(double mean);

// One figure that a user can expect of a candidate.
struct Figure {
  std::string name;  // "output", "time to first token"
  const MetricInfo* metric;
  const Series* series;
};
std::vector<Figure> FiguresOf(const Candidate& candidate, Objective objective);

// "7 of 8 configurations measured, 6 rounds and 9 to confirm, 8 min 20 s".
std::string EffortText(const Results& results);

// "AMD EPYC 9654, 96 cores, 192 CPUs, 2 NUMA nodes", from the fingerprint.
std::string MachineLine(const Results& results);

}  // namespace pinion::harness
