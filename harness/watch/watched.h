#pragma once

#include <string>

#include "harness/sweep/progress.h"
#include "harness/watch/server.h"
#include "harness/watch/views.h"

namespace pinion::harness {

// A sweep's progress for --watch: the lines of TerminalProgress, on a terminal with the
// table of configurations above them, and updates for the browsers of `server` (may be null).
class WatchedProgress : public Progress {
 public:
  WatchedProgress(std::string folder, TableView table, WatchServer* server);
  ~WatchedProgress() override;
  void Begin(const ProgressLine& line) override;
  void End(const ProgressLine& line, bool ok, const std::string& what) override;
  void Note(const std::string& text) override;

 private:
  void Erase();
  void Draw();

  const std::string folder_;
  const TableView table_;
  WatchServer* const server_;
  const bool terminal_;
  size_t drawn_ = 0;  // lines of the table above the progress line
  TerminalProgress lines_;
};

}  // namespace pinion::harness
