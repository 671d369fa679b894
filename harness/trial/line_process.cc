#include "harness/trial/line_process.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

constexpr size_t kMostAnswerBytes = size_t{64} << 20;  // of one line
constexpr int kPollMs = 200;

}  // namespace

Result<LineProcess> LineProcess::Start(Process::Options options, std::string name) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return Fail(ErrorCode::kIo, StrCat("cannot make a socket: ", std::strerror(errno)));
  Descriptor ours(ends[0]);
  const Descriptor theirs(ends[1]);
  options.stdin_fd = options.stdout_fd = theirs.get();
  PINION_ASSIGN(Process process, Process::Start(options));
  return LineProcess(std::move(process), std::move(ours), std::move(name));
}

Result<std::string> LineProcess::Ask(std::string_view line,
                                     const std::function<std::string()>& why_stop) {
  PINION_TRY(Write(StrCat(line, "\n"), why_stop));
  std::string answer;
  char part[1 << 16];
  while (answer.empty() || answer.back() != '\n') {
    PINION_TRY(WaitFor(POLLIN, why_stop));
    const ssize_t count = recv(socket_.get(), part, sizeof part, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Unexpected(Ended().error());
    answer.append(part, static_cast<size_t>(count));
    if (answer.size() <= kMostAnswerBytes) continue;
    process_.Stop(0);
    return Fail(ErrorCode::kFailed, StrCat(name_, " answered more than ", kMostAnswerBytes >> 20,
                                           " MiB without the end of a line"));
  }
  answer.pop_back();
  return answer;
}

Status LineProcess::WaitFor(short event, const std::function<std::string()>& why_stop) {
  pollfd ready = {socket_.get(), event, 0};
  while (poll(&ready, 1, kPollMs) <= 0) {
    const std::string why = why_stop();
    if (why.empty()) continue;
    process_.Stop(0);
    return Fail(ErrorCode::kFailed, why);
  }
  return {};
}

Status LineProcess::Write(std::string_view text, const std::function<std::string()>& why_stop) {
  while (!text.empty()) {
    PINION_TRY(WaitFor(POLLOUT, why_stop));
    const ssize_t sent = send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent < 0) return Ended();
    text.remove_prefix(static_cast<size_t>(sent));
  }
  return {};
}

Status LineProcess::Ended() {
  const Process::Exit exit = process_.Stop(1);
  return Fail(ErrorCode::kFailed, exit.signal != 0
                                      ? StrCat(name_, " was ended by signal ", exit.signal, " (",
                                               strsignal(exit.signal), ")")
                                      : StrCat(name_, " ended with exit code ", exit.code));
}

}  // namespace pinion::harness
