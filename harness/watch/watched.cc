#include "harness/watch/watched.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "harness/sweep/load.h"

namespace pinion::harness {

WatchedProgress::WatchedProgress(std::string folder, TableView table, WatchServer* server)
    : folder_(std::move(folder)),
      table_(std::move(table)),
      server_(server),
      terminal_(isatty(STDERR_FILENO) != 0) {}

WatchedProgress::~WatchedProgress() { Erase(); }

void WatchedProgress::Begin(const ProgressLine& line) { lines_.Begin(line); }

void WatchedProgress::End(const ProgressLine& line, bool ok, const std::string& what) {
  Erase();
  lines_.End(line, ok, what);
  if (terminal_) Draw();
  if (server_) server_->Tell(FormatLine(line, 200), false);
}

void WatchedProgress::Note(const std::string& text) {
  Erase();
  lines_.Note(text);
}

void WatchedProgress::Erase() {
  lines_.Clear();  // the progress line, which is below the table
  if (drawn_ > 0) std::fprintf(stderr, "\033[%zuA\033[J", drawn_);
  drawn_ = 0;
}

void WatchedProgress::Draw() {
  winsize size = {};
  ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
  const size_t width = size.ws_col >= 20 ? size.ws_col - 1u : 79;
  const size_t height = size.ws_row >= 8 ? size.ws_row - 3u : 20;
  const auto results = LoadResults(folder_);
  if (!results) return;
  const std::string table = table_(*results, width, height);
  std::fputs(table.c_str(), stderr);
  drawn_ = static_cast<size_t>(std::count(table.begin(), table.end(), '\n'));
}

}  // namespace pinion::harness
