#pragma once

#include <string>

#include "harness/store/store.h"

namespace pinion::harness {

// A sweep's position, for its progress line.
struct ProgressLine {
  Phase phase = Phase::kRace;
  int round = 0, rounds = 0;     // rounds: the most there may be; 0: unknown
  int position = 0, trials = 0;  // within the round, from 1
  std::string label;             // of the candidate
  double left_s = 0;             // of the budget; 0: unknown
};

// Shows the progress of a sweep: one line that is overwritten on a terminal, a line per trial
// elsewhere. Writes to standard error only.
class Progress {
 public:
  virtual ~Progress() = default;
  virtual void Begin(const ProgressLine& line) = 0;
  // `what`: "8.1 s, 123 tokens/s", or why the trial failed.
  virtual void End(const ProgressLine& line, bool ok, const std::string& what) = 0;
  // A message that stays on the screen.
  virtual void Note(const std::string& text) = 0;
};

// Prints nothing.
class SilentProgress : public Progress {
 public:
  void Begin(const ProgressLine&) override {}
  void End(const ProgressLine&, bool, const std::string&) override {}
  void Note(const std::string&) override {}
};

class TerminalProgress : public Progress {
 public:
  TerminalProgress();
  ~TerminalProgress() override;
  void Begin(const ProgressLine& line) override;
  void End(const ProgressLine& line, bool ok, const std::string& what) override;
  void Note(const std::string& text) override;
  void Clear();  // erases the progress line

 private:
  bool overwrite_;      // standard error is a terminal
  bool shown_ = false;  // there is a progress line on the screen
};

// "round 2/6  trial 3/7  isa=avx2  at most 5 min 10 s left", at most `width` characters.
std::string FormatLine(const ProgressLine& line, size_t width);

}  // namespace pinion::harness
