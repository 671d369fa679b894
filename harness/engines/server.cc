#include "harness/engines/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "engine/base/clock.h"
#include "engine/base/descriptor.h"
#include "engine/base/json.h"
#include "engine/base/process.h"
#include "engine/base/strings.h"
#include "harness/counters/listeners.h"
#include "harness/counters/process_tree.h"
#include "harness/engines/process_memory.h"
#include "harness/load/http_client.h"

namespace pinion::harness {
namespace {

constexpr double kPollSeconds = 0.1, kHealthSeconds = 5, kStopSeconds = 10;

// The guard reports a signal as a shell does: 128 more than its number.
std::string Describe(const Process::Exit& exit) {
  const int signal = exit.signal == 0 && exit.code > 128 ? exit.code - 128 : exit.signal;
  if (signal != 0) return StrCat("was ended by signal ", signal, " (", strsignal(signal), ")");
  return StrCat("ended with exit code ", exit.code);
}

class GuardedServer final : public EngineServer {
 public:
  GuardedServer(Process process, Descriptor guard, int port)
      : process_(std::move(process)),
        group_(process_.pid()),
        guard_(std::move(guard)),
        port_(port),
        url_(ServerUrl::OfPort(port)) {}
  ~GuardedServer() override { process_.Stop(kStopSeconds); }

  const ServerUrl& url() const override { return url_; }
  double start_s() const override { return start_s_; }

  std::vector<pid_t> processes() const override {
    std::vector<pid_t> found;
    if (!process_.running()) return found;  // its number may be another's by now
    for (const TreeProcess& process : ProcessTree(group_)) found.push_back(process.id);
    return found;
  }

  uint64_t peak_rss_bytes() const override { return PeakMemoryBytes(processes()); }

  std::string WhyEnded(double patience_s) override {
    Look(patience_s);
    return ended_;
  }

  Status WaitUntilReady(const EngineChoice& engine, double patience_s,
                        const std::function<bool()>& interrupted) override {
    std::string last = "no answer";
    while (SecondsSince(start_ns_) < patience_s) {
      auto answer = HttpFetch(url_, engine.health, kHealthSeconds);
      // A server without that path is ready when it lists its models.
      if (!answer && answer.error().code == ErrorCode::kNotFound)
        answer = HttpFetch(url_, "/v1/models", kHealthSeconds);
      start_s_ = SecondsSince(start_ns_);
      if (const std::string why = WhyEnded(0); !why.empty())
        return Fail(ErrorCode::kFailed, StrCat(why, " before it was ready"));
      const bool is_strangers = answer && ListensAStranger(port_, group_);
      if (answer && !is_strangers) return {};
      last =
          is_strangers ? StrCat("another process has taken port ", port_) : answer.error().message;
      if (interrupted()) return Fail(ErrorCode::kExhausted, "was interrupted while it started");
      usleep(static_cast<useconds_t>(kPollSeconds * 1e6));
    }
    return Fail(ErrorCode::kTimeout, StrCat("was not ready within ",
                                            std::round(patience_s * 10) / 10, " s (", last, ")"));
  }

 private:
  // Waits up to `seconds` for its end, and then ends the processes that it left behind.
  void Look(double seconds) {
    if (!process_.running()) return;
    if (const auto exit = process_.WaitAndEndGroup(seconds)) ended_ = Describe(*exit);
  }

  Process process_;
  const pid_t group_;
  const Descriptor guard_;  // open as long as this process lives, which is how the guard knows
  const int port_;
  const ServerUrl url_;
  const int64_t start_ns_ = NowNs();
  double start_s_ = 0;
  std::string ended_;
};

}  // namespace

Result<int> FreePort() {
  const Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (fd.get() >= 0 && bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0)
    return int{ntohs(address.sin_port)};
  return Fail(ErrorCode::kIo, StrCat("no free port on 127.0.0.1: ", std::strerror(errno)));
}

Result<std::unique_ptr<EngineServer>> EngineServer::Start(const EngineCommand& command, int port,
                                                          int log_fd) {
  int guard[2];
  if (pipe2(guard, O_CLOEXEC) != 0)
    return Fail(ErrorCode::kIo, StrCat("cannot make a pipe: ", std::strerror(errno)));
  const Descriptor theirs(guard[0]);
  Descriptor ours(guard[1]);
  Process::Options options;
  options.arguments = {SelfPath(), kGuardCommand, Json(command.command.arguments).Dump()};
  options.environment = command.command.environment;
  options.cpus = command.cpus;
  options.stdin_fd = theirs.get();
  options.stdout_fd = options.stderr_fd = log_fd;
  PINION_ASSIGN(Process process, Process::Start(options));
  return std::make_unique<GuardedServer>(std::move(process), std::move(ours), port);
}

}  // namespace pinion::harness
