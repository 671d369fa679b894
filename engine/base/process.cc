#include "engine/base/process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "engine/base/clock.h"
#include "engine/base/descriptor.h"
#include "engine/base/file.h"
#include "engine/base/strings.h"

extern char** environ;

namespace pinion {
namespace {

// Everything the child needs until it calls exec, prepared before it is made: until then it has its
// parent's memory, and may only make async-signal-safe calls.
struct ChildPlan {
  std::vector<char*> argv, envp;
  std::optional<cpu_set_t> cpus;
  const Process::Options* options;
  pid_t parent;
  int report_fd;
};

[[noreturn]] void FailInChild(int report_fd) {
  const int code = errno;
  [[maybe_unused]] const ssize_t ignored = write(report_fd, &code, sizeof code);
  _exit(127);
}

// A copy of `fd` whose number is `least` or more. If `least` exceeds the limit on descriptors,
// fcntl gives EINVAL; report EMFILE instead, as all other calls do.
int CopyFrom(int fd, int least) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, least);
  if (copy < 0 && errno == EINVAL) errno = EMFILE;
  return copy;
}

// The first number above every target.
int Above(const std::pair<int, int>* moves, size_t count) {
  int above = 3;
  for (size_t i = 0; i < count; ++i) above = std::max(above, moves[i].second + 1);
  return above;
}

// Moves descriptors to their numbers, and leaves the child no others above 2. Sources are first
// copied above every target, so that one mapping cannot overwrite another's source.
void PlaceDescriptors(const ChildPlan& plan, std::pair<int, int>* moves, size_t count) {
  // Libraries make some that exec would keep: a connection just accepted, which the child would
  // then hold open for its life. An error: the kernel is older than 5.11, and those few are kept.
  close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  const int above = Above(moves, count);
  for (size_t i = 0; i < count; ++i) {
    moves[i].first = CopyFrom(moves[i].first, above);
    if (moves[i].first < 0) FailInChild(plan.report_fd);
  }
  for (size_t i = 0; i < count; ++i)
    if (dup2(moves[i].first, moves[i].second) < 0) FailInChild(plan.report_fd);
}

// A handler of the parent's would run in the parent's memory. Signals that are ignored stay so, as
// exec leaves them.
void ForgetHandlers() {
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action;
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN &&
        action.sa_handler != SIG_DFL)
      signal(number, SIG_DFL);
  }
}

[[noreturn, gnu::noinline]] void RunChild(const ChildPlan& plan, std::pair<int, int>* moves,
                                          size_t count) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(127);  // the parent died before the line above
  if (plan.options->own_group) setpgid(0, 0);
  ForgetHandlers();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  if (plan.cpus && sched_setaffinity(0, sizeof(cpu_set_t), &*plan.cpus) != 0)
    FailInChild(plan.report_fd);
  PlaceDescriptors(plan, moves, count);
  execvpe(plan.argv[0], plan.argv.data(), plan.envp.data());
  FailInChild(plan.report_fd);
}

// Signals wait while a child is made, until it has forgotten their handlers. Leaves errno as it is.
class SignalsWait {
 public:
  SignalsWait() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsWait() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// The child borrows this process's memory until it calls exec, while this thread waits: copying the
// tables of a large process's pages takes longer than all else. Its own function, so that nothing
// that the child leaves in registers and on the stack is read later. `unused_fd`: closed in the
// child, which leaves one more descriptor for the moves under a tight limit.
[[gnu::noinline]] pid_t MakeChild(const ChildPlan& plan, std::pair<int, int>* moves, size_t count,
                                  int unused_fd) {
  const SignalsWait wait;
  const pid_t pid = vfork();
  if (pid == 0) {
    close(unused_fd);
    RunChild(plan, moves, count);
  }
  return pid;
}

std::vector<std::string> MergedEnvironment(const Process::Options& options) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    const bool replaced = std::any_of(options.environment.begin(), options.environment.end(),
                                      [&](const auto& pair) { return pair.first == name; });
    if (!replaced) merged.emplace_back(text);
  }
  for (const auto& [name, value] : options.environment) merged.push_back(StrCat(name, '=', value));
  return merged;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Carries the child's errno if it fails before or in exec; a successful exec closes it.
struct ReportPipe {
  Descriptor reader, writer;

  // The writer must survive the moves, so it gets a number above all their targets. False on
  // failure, with the reason in errno.
  bool Open(const std::vector<std::pair<int, int>>& moves) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    reader = Descriptor(ends[0]);
    const Descriptor low(ends[1]);
    writer = Descriptor(CopyFrom(low.get(), Above(moves.data(), moves.size())));
    return writer.is_open();
  }

  // 0, or the child's errno.
  int Read() {
    writer = Descriptor();
    int code = 0;
    while (read(reader.get(), &code, sizeof code) < 0 && errno == EINTR) {
    }
    return code;
  }
};

tl::unexpected<Error> CannotStart(const Process::Options& options, int code) {
  const char* way_out = code == EMFILE   ? "; allow more with ulimit -n"
                        : code == EAGAIN ? "; allow more processes with ulimit -u"
                                         : "";
  return Fail(ErrorCode::kIo,
              StrCat("cannot start '", options.arguments[0], "': ", std::strerror(code), way_out));
}

Process::Exit Decode(int status) {
  if (WIFSIGNALED(status)) return {0, WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

}  // namespace

Result<Process> Process::Start(const Options& options) {
  const std::vector<std::string> environment = MergedEnvironment(options);
  ChildPlan plan{Pointers(options.arguments), Pointers(environment), {}, &options, getpid(), -1};
  if (options.cpus) {
    plan.cpus.emplace();
    CPU_ZERO(&*plan.cpus);
    for (int cpu : *options.cpus) CPU_SET(static_cast<size_t>(cpu), &*plan.cpus);
  }
  const Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.is_open()) return CannotStart(options, errno);
  std::vector<std::pair<int, int>> moves = options.pass_fds;
  moves.emplace_back(options.stdin_fd >= 0 ? options.stdin_fd : null.get(), 0);
  if (options.stdout_fd >= 0) moves.emplace_back(options.stdout_fd, 1);
  if (options.stderr_fd >= 0) moves.emplace_back(options.stderr_fd, 2);
  ReportPipe report;
  if (!report.Open(moves)) return CannotStart(options, errno);
  plan.report_fd = report.writer.get();
  const pid_t pid = MakeChild(plan, moves.data(), moves.size(), report.reader.get());
  if (pid < 0) return CannotStart(options, errno);
  if (const int code = report.Read()) {
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return CannotStart(options, code);
  }
  return Process(pid, options.own_group);
}

Process& Process::operator=(Process&& other) noexcept {
  if (this != &other) {
    Stop(0);
    pid_ = std::exchange(other.pid_, -1);
    group_ = other.group_;
  }
  return *this;
}

Process::~Process() { Stop(0); }

std::optional<Process::Exit> Process::Wait(double seconds) { return WaitFor(seconds, false); }

std::optional<Process::Exit> Process::WaitAndEndGroup(double seconds) {
  return WaitFor(seconds, group_);
}

std::optional<Process::Exit> Process::WaitFor(double seconds, bool end_group) {
  if (pid_ <= 0) return Exit{};
  const int64_t start = NowNs();
  for (useconds_t pause_us = 200;; pause_us = std::min<useconds_t>(pause_us * 2, 20'000)) {
    int status = 0;
    siginfo_t ended = {};  // the child stays a zombie, which keeps its number
    if (end_group &&
        waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        ended.si_pid == pid_)
      kill(-pid_, SIGKILL);
    const pid_t done = waitpid(pid_, &status, WNOHANG);
    if (done == pid_ || (done < 0 && errno != EINTR)) {
      pid_ = -1;
      return Decode(status);
    }
    if (SecondsSince(start) >= seconds) return std::nullopt;
    usleep(pause_us);
  }
}

void Process::Signal(int number) {
  if (pid_ > 0) kill(group_ ? -pid_ : pid_, number);
}

Process::Exit Process::Stop(double grace_seconds) {
  if (pid_ <= 0) return {};
  if (grace_seconds > 0) {
    Signal(SIGTERM);
    if (auto exit = WaitAndEndGroup(grace_seconds)) return *exit;
  }
  Signal(SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return Decode(status);
}

uint64_t PeakRssBytes(pid_t pid) {
  std::istringstream words(ReadFile(StrCat("/proc/", pid, "/status"), 1 << 16).value_or(""));
  std::string word;
  uint64_t kib = 0;
  while (words >> word)
    if (word == "VmHWM:" && words >> kib) return kib * 1024;
  return 0;
}

std::string SelfPath() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : "pinion";
}

}  // namespace pinion
