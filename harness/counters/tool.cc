#include "harness/counters/tool.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

// The first line that is called an error, or else the last line.
std::string ErrorIn(const std::string& text) {
  constexpr size_t kLongest = 160;  // pcm lists every processor that it knows
  std::string found;
  for (const std::string& line : Split(text, '\n')) {
    if (!Trim(line).empty()) found = Trim(line);
    if (found.starts_with("Error") || found.starts_with("ERROR")) break;
  }
  return found.size() > kLongest ? found.substr(0, kLongest) + "..." : found;
}

}  // namespace

std::string FindTool(const std::string& root, const std::string& name) {
  const char* path = std::getenv("PATH");
  // A user's PATH seldom has the folder of the tools that need root.
  for (const std::string& folder : Split(StrCat(path ? path : "", ":/usr/sbin"), ':')) {
    if (!folder.starts_with('/')) continue;
    std::string program = StrCat(root, folder.substr(1), "/", name);
    std::error_code ignored;
    if (std::filesystem::is_regular_file(program, ignored) && access(program.c_str(), X_OK) == 0)
      return program;
  }
  return "";
}

std::optional<CounterGap> Tool::Start(const std::vector<std::string>& arguments) {
  name_ = std::filesystem::path(arguments[0]).filename();
  Process::Options options;
  options.arguments = arguments;
  for (auto* file : {&output_, &errors_}) {
    auto made = MemoryFile::Make(name_);
    if (!made) return CounterGap(std::move(made).error());
    *file = std::move(*made);
  }
  options.stdout_fd = output_->fd();
  options.stderr_fd = errors_->fd();
  auto child = Process::Start(options);
  if (!child) return CounterGap(std::move(child).error());
  child_.emplace(std::move(*child));
  return std::nullopt;
}

std::string Tool::Finish(int signal, double patience_s) {
  constexpr double kGraceSeconds = 0.2;
  constexpr uint64_t kMostBytes = uint64_t{1} << 30;
  std::optional<Process::Exit> exit = child_->Wait(0);
  if (!exit) {
    if (signal != 0) child_->Signal(signal);
    exit = child_->Wait(patience_s);
  }
  killed_ = !exit;
  if (killed_) child_->Stop(kGraceSeconds);
  failed_ = exit && (exit->code != 0 || exit->signal != 0);
  error_ = ErrorIn(errors_->Text(kMostBytes).value_or(""));
  return output_->Text(kMostBytes).value_or("");
}

std::string Tool::WhyNothing(const std::string& otherwise) const {
  if (killed_) return StrCat(name_, " did not end in time and was killed");
  return !failed_ || error_.empty() ? otherwise : StrCat(name_, " says '", error_, "'");
}

}  // namespace pinion::harness
