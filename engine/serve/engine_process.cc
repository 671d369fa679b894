#include "engine/serve/engine_process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/descriptor.h"
#include "engine/base/progress.h"
#include "engine/base/strings.h"

namespace pinion {

LogTail::LogTail(int fd) : fd_(fd) { fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK); }
LogTail::~LogTail() { close(fd_); }

bool LogTail::Read() {
  char chunk[4096];
  for (;;) {
    const ssize_t got = read(fd_, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 && errno == EAGAIN;
    [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, chunk, static_cast<size_t>(got));
    tail_.append(chunk, static_cast<size_t>(got));
    if (tail_.size() > 2 * kKeptBytes) tail_.erase(0, tail_.size() - kKeptBytes);
  }
}

std::string LogTail::LastLine() const {
  const std::string_view text = Trim(tail_);
  return std::string(text.substr(text.rfind('\n') + 1));  // npos + 1 is 0
}

Result<EngineProcess> EngineProcess::Start(
    const std::vector<std::string>& command, const std::vector<int>& cpus,
    const std::vector<std::pair<std::string, std::string>>& environment, int link_fd,
    int weights_fd) {
  const Descriptor link(link_fd);
  int log[2];
  PINION_ASSIGN(MemoryFile progress, progress::MakeCounts());
  if (pipe2(log, O_CLOEXEC) != 0)
    return Fail(ErrorCode::kIo, StrCat("cannot make a pipe: ", std::strerror(errno)));
  const Descriptor log_writer(log[1]);
  auto tail = std::make_unique<LogTail>(log[0]);
  Process::Options start;
  start.arguments = command;
  start.environment = environment;
  if (!cpus.empty()) start.cpus = cpus;
  start.pass_fds = {{link.get(), kEngineLinkFd}, {progress.fd(), kEngineProgressFd}};
  if (weights_fd >= 0) start.pass_fds.emplace_back(weights_fd, kEngineWeightsFd);
  start.stderr_fd = log_writer.get();
  PINION_ASSIGN(Process process, Process::Start(start));
  return EngineProcess{std::move(process), std::move(tail), std::move(progress)};
}

std::string Describe(const Process::Exit& exit, const std::string& last_line) {
  std::string text = "the engine process ";
  text += exit.signal != 0
              ? StrCat("was ended by signal ", exit.signal, " (", strsignal(exit.signal), ")")
              : StrCat("ended with exit code ", exit.code);
  if (!last_line.empty()) text += StrCat("; its last line was: ", last_line);
  return text;
}

}  // namespace pinion
