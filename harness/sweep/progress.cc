#include "harness/sweep/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "engine/base/strings.h"
#include "harness/results/figures.h"

namespace pinion::harness {
namespace {

size_t TerminalWidth() {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return 80;
  return size.ws_col;
}

}  // namespace

std::string FormatLine(const ProgressLine& line, size_t width) {
  std::string text =
      StrCat(line.phase == Phase::kRace ? "" : StrCat(Name(line.phase), " "), "round ", line.round);
  if (line.rounds > 0) text += StrCat("/", line.rounds);
  text += StrCat("  trial ", line.position, "/", line.trials);
  const std::string left =
      line.left_s > 0 ? StrCat("  at most ", FormatSeconds(line.left_s), " left") : "";
  const size_t room =
      width > text.size() + left.size() + 2 ? width - text.size() - left.size() - 2 : 0;
  text += "  " + line.label.substr(0, room) + left;
  return text.substr(0, width);
}

TerminalProgress::TerminalProgress() : overwrite_(isatty(STDERR_FILENO) != 0) {}

TerminalProgress::~TerminalProgress() { Clear(); }

void TerminalProgress::Clear() {
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

void TerminalProgress::Begin(const ProgressLine& line) {
  if (!overwrite_) return;
  Clear();
  std::fputs(FormatLine(line, TerminalWidth() - 1).c_str(), stderr);
  std::fflush(stderr);
  shown_ = true;
}

void TerminalProgress::End(const ProgressLine& line, bool ok, const std::string& what) {
  // On a terminal only failures stay visible; elsewhere every trial is a line of a log.
  if (overwrite_ && ok) return;
  Clear();
  const std::string place = FormatLine(line, 1000);
  std::fprintf(stderr, "%s  %s%s\n", place.c_str(), ok ? "" : "FAILED: ", what.c_str());
}

void TerminalProgress::Note(const std::string& text) {
  Clear();
  std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace pinion::harness
