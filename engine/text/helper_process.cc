#include "engine/text/helper_process.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "engine/base/strings.h"
#include "engine/text/embedded_python.h"

namespace pinion {

std::string HelperPath() {
  const char* named = std::getenv("PINION_BINARY");
  return named && *named ? named : SelfPath();
}

Result<HelperProcess> StartHelper(const char* command, std::optional<int> passed,
                                  const std::vector<int>& cpus) {
  std::array<int, 2> ends;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return Fail(ErrorCode::kIo, StrCat("cannot make a socket: ", std::strerror(errno)));
  // Theirs is closed on our side on return: otherwise the end of the helper would not read as end
  // of file.
  Descriptor ours(ends[0]);
  const Descriptor theirs(ends[1]);
  Process::Options options;
  options.arguments = {HelperPath(), command};
  options.stdout_fd = STDERR_FILENO;  // results belong to our standard output alone
  options.pass_fds = {{theirs.get(), kHelperRequests}, {theirs.get(), kHelperAnswers}};
  if (!cpus.empty()) options.cpus = cpus;
  if (passed) options.pass_fds.emplace_back(*passed, kHelperAnswers + 1);
  PINION_ASSIGN(Process process, Process::Start(options));
  return HelperProcess{std::move(process), std::move(ours)};
}

}  // namespace pinion
