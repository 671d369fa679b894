#include "harness/trial/runner.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "engine/base/file.h"
#include "engine/base/memory_file.h"
#include "engine/base/process.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

constexpr double kPollSeconds = 0.2;
// Time for a trial to stop its servers; after it, their guards do.
constexpr double kStopSeconds = 15;
constexpr uint64_t kMaxResultBytes = uint64_t{64} << 20;

// The child's error message ("pinion: ..."), or its exit code.
std::string ReasonFor(const Process::Exit& exit, const std::string& log_tail) {
  if (exit.signal == SIGKILL) return "killed by signal 9, most likely for lack of memory";
  if (exit.signal != 0)
    return StrCat("crashed: signal ", exit.signal, " (", strsignal(exit.signal), ")");
  const std::vector<std::string> lines = Split(log_tail, '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line)
    if (line->rfind("pinion: ", 0) == 0) return line->substr(8);
  return StrCat("ended with exit code ", exit.code);
}

Result<Json> ReadJson(const MemoryFile& file) {
  PINION_ASSIGN(const std::string text, file.Text(kMaxResultBytes));
  return Json::Parse(text);
}

void Take(Result<TrialResult> result, TrialOutcome& outcome) {
  if (!result) {
    outcome.reason = std::move(result).error().message;
    return;
  }
  outcome.out_of_time = !result->too_slow.empty();
  outcome.ok = !outcome.out_of_time;
  if (outcome.out_of_time) {
    outcome.reason = result->too_slow;
    outcome.result.info.cut = result->info.cut;
  }
  if (outcome.ok) outcome.result = std::move(*result);
}

// The child's result, read by `read`, if it has one.
template <typename Read>
auto Then(const Result<Json>& result, const Read& read) -> decltype(read(*result)) {
  if (!result) return Unexpected(Error(result.error()));
  auto made = read(*result);
  if (made) return made;
  return Fail(ErrorCode::kFailed, StrCat("its result cannot be read: ", made.error().message));
}

// End of the child: its result, or why there is none.
struct ChildEnd {
  Result<Json> result;
  bool interrupted = false;
  double seconds = 0;
};

}  // namespace

Result<Descriptor> OpenLog(const std::string& path) {
  Descriptor log(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (log.is_open()) return log;
  return Fail(ErrorCode::kIo, StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

namespace {

// An engine may write gigabytes, or never end a line.
std::string EndOf(const std::string& path) {
  constexpr off_t kMostBytes = 16 << 10;
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const off_t size = lseek(file.get(), 0, SEEK_END);
  if (size <= 0) return "";
  std::string text(static_cast<size_t>(std::min(size, kMostBytes)), '\0');
  const ssize_t count =
      pread(file.get(), text.data(), text.size(), std::max<off_t>(0, size - kMostBytes));
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, count)));
  return text;
}

}  // namespace

std::string LogTail(const std::string& path, size_t lines) {
  const std::string text = EndOf(path);
  size_t at = text.size();
  if (at > 0 && text[at - 1] == '\n') --at;
  const std::string whole = text.substr(0, at);
  for (size_t count = 0; count < lines && at != std::string::npos && at > 0; ++count)
    at = whole.rfind('\n', at - 1);
  return at == std::string::npos || at == 0 ? whole : whole.substr(at + 1);
}

namespace {

Result<Json> ResultOf(const Process::Exit& exit, const MemoryFile& file,
                      const std::string& log_path) {
  if (exit.code != 0 || exit.signal != 0)
    return Fail(ErrorCode::kFailed, ReasonFor(exit, LogTail(log_path)));
  auto result = ReadJson(file);
  if (result) return result;
  return Fail(ErrorCode::kFailed, StrCat("its result cannot be read: ", result.error().message));
}

Result<ChildEnd> RunChild(const Json& request, const TrialProcess& process) {
  PINION_ASSIGN(const Descriptor log, OpenLog(process.log_path));
  PINION_ASSIGN(MemoryFile request_file, MemoryFile::Make("a trial's request"));
  PINION_ASSIGN(const MemoryFile result, MemoryFile::Make("a trial's result"));
  PINION_TRY(request_file.Write(request.Dump()));
  Process::Options options;
  options.arguments = {process.binary, "trial"};
  options.environment = process.environment;
  options.stdin_fd = request_file.fd();
  options.stdout_fd = result.fd();
  options.stderr_fd = log.get();
  const int64_t start_ns = process.clock->NowNs();
  const auto seconds = [&] {
    return static_cast<double>(process.clock->NowNs() - start_ns) * 1e-9;
  };
  PINION_ASSIGN(Process child, Process::Start(options));
  ChildEnd end;
  std::optional<Process::Exit> exit;
  while (!(exit = child.Wait(kPollSeconds))) {
    end.interrupted = process.interrupted();
    if (end.interrupted || seconds() > process.timeout_s) break;
  }
  if (!exit) child.Stop(kStopSeconds);
  end.seconds = seconds();
  if (end.interrupted) return end;
  if (exit) {
    end.result = ResultOf(*exit, result, process.log_path);
  } else {
    end.result = Fail(ErrorCode::kFailed,
                      StrCat("hung: killed after ", std::lround(process.timeout_s), " s"));
  }
  return end;
}

}  // namespace

Result<TrialOutcome> RunTrialProcess(const TrialRequest& request, const TrialProcess& process) {
  PINION_ASSIGN(const ChildEnd end, RunChild(ToJson(request), process));
  TrialOutcome outcome;
  outcome.seconds = end.seconds;
  outcome.interrupted = end.interrupted;
  if (end.interrupted) return outcome;
  Take(Then(end.result, ReadTrialResult), outcome);
  if (!outcome.ok) outcome.log_tail = LogTail(process.log_path);
  return outcome;
}

Result<std::array<TrialOutcome, 2>> RunPairProcess(const PairRequest& request,
                                                   const TrialProcess& process) {
  PINION_ASSIGN(const ChildEnd end, RunChild(ToJson(request), process));
  std::array<TrialOutcome, 2> outcomes;
  const Result<PairResult> pair = Then(end.result, ReadPairResult);
  for (size_t side = 0; side < outcomes.size(); ++side) {
    TrialOutcome& outcome = outcomes[side];
    outcome.seconds = end.seconds / 2;
    outcome.interrupted = end.interrupted;
    if (end.interrupted) continue;
    Take(pair ? (*pair)[side] : Unexpected(Error(pair.error())), outcome);
    if (!outcome.ok)
      outcome.log_tail = LogTail(side == 0 ? process.log_path : request.sides[side].log);
  }
  return outcomes;
}

}  // namespace pinion::harness
