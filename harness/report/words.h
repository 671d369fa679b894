#pragma once

#include <string>
#include <vector>

#include "harness/report/results.h"

// Numbers and verdicts as people read them: the same words in report.md and report.html.

namespace pinion::harness {

// "41.3 tokens/s", "183 ms", "2.1 GiB": three significant digits in a unit that fits.
std::string FormatFigure(const std::string& unit, double value);
// "712 to 742 tokens/s": the unit once where both ends fit it.
std::string FormatRange(const std::string& unit, double low, double high);
// 1.082 -> "+8.2 %"; from 10 on "12.4 times".
std::string FormatChange(double ratio);
// "+3.1 to +12.0 %"; "no interval (n = 4)" where there are too few rounds for one.
std::string FormatChangeInterval(const Estimate& ratio);
std::string Counted(size_t count, const char* noun);  // "1 round", "2 rounds"
std::string FormatSeconds(double seconds);            // "48 s", "8 min 20 s"

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

// "Runner-up: isa=avx512, 3.1 % behind." or that it cannot be told apart; empty where there is
// none.
std::string RunnerUp(const Results& results, const Verdict& verdict, Objective objective);

// The report's first sentence, over all objectives.
std::string Answer(const Results& results);

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
