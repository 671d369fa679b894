#include "harness/trial/runner.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/process.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

constexpr double kPollSeconds = 0.2;
// A trial of servers stops them in order; should it not, their guards do.
constexpr double kStopSeconds = 15;
constexpr size_t kMaxResultBytes = size_t{64} << 20;

// A descriptor that closes itself.
class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Files in memory carry the request and the result: no pipe that could fill up and block.
int MemoryFile(const char* name) { return memfd_create(name, MFD_CLOEXEC); }

bool WriteAll(int fd, const std::string& text) {
  for (size_t written = 0; written < text.size();) {
    const ssize_t count = write(fd, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    written += static_cast<size_t>(count);
  }
  return lseek(fd, 0, SEEK_SET) == 0;
}

std::string ReadAll(int fd) {
  const off_t size = lseek(fd, 0, SEEK_END);
  if (size <= 0 || static_cast<size_t>(size) > kMaxResultBytes) return "";
  std::string text(static_cast<size_t>(size), '\0');
  for (size_t at = 0; at < text.size();) {
    const ssize_t count = pread(fd, text.data() + at, text.size() - at, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return "";
    at += static_cast<size_t>(count);
  }
  return text;
}

// The sentence that the child ended with ("pinion: ..."), or its exit code.
std::string ReasonFor(const Process::Exit& exit, const std::string& log_tail) {
  if (exit.signal == SIGKILL) return "killed by signal 9, most likely for want of memory";
  if (exit.signal != 0)
    return StrCat("crashed: signal ", exit.signal, " (", strsignal(exit.signal), ")");
  const std::vector<std::string> lines = Split(log_tail, '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line)
    if (line->rfind("pinion: ", 0) == 0) return line->substr(8);
  return StrCat("ended with exit code ", exit.code);
}

void Finish(const Process::Exit& exit, int result_fd, TrialOutcome& outcome) {
  if (exit.code == 0 && exit.signal == 0) {
    auto json = Json::Parse(ReadAll(result_fd));
    auto result = json ? ReadTrialResult(*json) : Unexpected(std::move(json).error());
    outcome.ok = result.has_value();
    if (result) outcome.result = std::move(*result);
    if (!result) outcome.reason = StrCat("its result cannot be read: ", result.error().message);
    return;
  }
  outcome.reason = ReasonFor(exit, outcome.log_tail);
}

}  // namespace

std::string LogTail(const std::string& path, size_t lines) {
  const std::string text = ReadFile(path).value_or("");
  size_t at = text.size();
  if (at > 0 && text[at - 1] == '\n') --at;
  const std::string whole = text.substr(0, at);
  for (size_t count = 0; count < lines && at != std::string::npos && at > 0; ++count)
    at = whole.rfind('\n', at - 1);
  return at == std::string::npos || at == 0 ? whole : whole.substr(at + 1);
}

Result<TrialOutcome> RunTrialProcess(const TrialRequest& request, const TrialProcess& process) {
  const Fd log(open(process.log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  const Fd request_file(MemoryFile("pinion-trial-request")),
      result(MemoryFile("pinion-trial-result"));
  if (log.get() < 0)
    return Fail(ErrorCode::kIo,
                StrCat("cannot write ", process.log_path, ": ", std::strerror(errno)));
  if (request_file.get() < 0 || result.get() < 0 ||
      !WriteAll(request_file.get(), ToJson(request).Dump()))
    return Fail(ErrorCode::kIo, StrCat("cannot prepare a trial: ", std::strerror(errno)));
  Process::Options options;
  options.arguments = {process.binary, "trial"};
  options.environment = process.environment;
  options.stdin_fd = request_file.get();
  options.stdout_fd = result.get();
  options.stderr_fd = log.get();
  const int64_t start_ns = NowNs();
  PINION_ASSIGN(Process child, Process::Start(options));
  TrialOutcome outcome;
  std::optional<Process::Exit> exit;
  while (!(exit = child.Wait(kPollSeconds))) {
    outcome.interrupted = process.interrupted();
    if (outcome.interrupted || SecondsSince(start_ns) > process.timeout_s) break;
  }
  if (!exit) child.Stop(request.is_served() ? kStopSeconds : 0);
  outcome.seconds = SecondsSince(start_ns);
  if (outcome.interrupted) return outcome;
  outcome.log_tail = LogTail(process.log_path);
  if (exit) {
    Finish(*exit, result.get(), outcome);
  } else {
    outcome.reason = StrCat("hung: killed after ", process.timeout_s, " s");
  }
  if (outcome.ok) outcome.log_tail.clear();
  return outcome;
}

}  // namespace pinion::harness
