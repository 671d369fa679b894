#include "harness/trial/generator_process.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>

#include "engine/base/descriptor.h"
#include "engine/base/process.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

constexpr int kPollMs = 200;

class Child final : public GeneratorProcess {
 public:
  Child(Process process, Descriptor socket)
      : process_(std::move(process)), socket_(std::move(socket)) {}

  Result<ServerLoadResult> Send(const GeneratorOrder& order,
                                const std::function<std::string()>& why_stop) override {
    PINION_TRY(Write(ToJson(order).Dump() + "\n"));
    PINION_ASSIGN(const std::string line, ReadLine(why_stop));
    PINION_ASSIGN(const Json json, Json::Parse(line));
    if (const Json* error = json.Find("error"))
      return Fail(ErrorCode::kFailed, error->is_string() ? error->string() : error->Dump());
    return ReadServerLoadResult(json);
  }

 private:
  Status Write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return Ended();
      text.remove_prefix(static_cast<size_t>(sent));
    }
    return {};
  }

  Result<std::string> ReadLine(const std::function<std::string()>& why_stop) {
    std::string line;
    char part[1 << 16];
    while (line.empty() || line.back() != '\n') {
      pollfd ready = {socket_.get(), POLLIN, 0};
      if (poll(&ready, 1, kPollMs) <= 0) {
        if (const std::string why = why_stop(); !why.empty()) {
          process_.Stop(0);
          return Fail(ErrorCode::kFailed, why);
        }
        continue;
      }
      const ssize_t count = recv(socket_.get(), part, sizeof part, 0);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return Unexpected(Ended().error());
      line.append(part, static_cast<size_t>(count));
    }
    line.pop_back();
    return line;
  }

  Status Ended() {
    const Process::Exit exit = process_.Stop(1);
    return Fail(ErrorCode::kFailed,
                exit.signal != 0 ? StrCat("the load generator was ended by signal ", exit.signal,
                                          " (", strsignal(exit.signal), ")")
                                 : StrCat("the load generator ended with exit code ", exit.code));
  }

  Process process_;
  Descriptor socket_;
};

Result<ServerLoadResult> Obey(const std::string& line) {
  PINION_ASSIGN(const Json json, Json::Parse(line));
  PINION_ASSIGN(const GeneratorOrder order, ReadGeneratorOrder(json));
  return RunServerLoad(order.urls, order.plan);
}

}  // namespace

Result<std::unique_ptr<GeneratorProcess>> GeneratorProcess::Start(
    const std::optional<std::vector<int>>& cpus) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return Fail(ErrorCode::kIo, StrCat("cannot make a socket: ", std::strerror(errno)));
  Descriptor ours(ends[0]);
  const Descriptor theirs(ends[1]);
  Process::Options options;
  options.arguments = {SelfPath(), kGeneratorCommand};
  options.cpus = cpus;
  options.stdin_fd = options.stdout_fd = theirs.get();
  PINION_ASSIGN(Process process, Process::Start(options));
  return std::make_unique<Child>(std::move(process), std::move(ours));
}

int RunGenerator() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto result = Obey(line);
    const Json answer =
        result ? ToJson(*result) : Json(Json::Object{{"error", result.error().message}});
    std::cout << answer.Dump() << std::endl;
    if (!std::cout) return 1;
  }
  return 0;
}

}  // namespace pinion::harness
