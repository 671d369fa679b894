#include "engine/base/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "engine/base/clock.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Pipe {
  Pipe() { EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0); }
  ~Pipe() {
    for (int end : ends) close(end);
  }
  void CloseWriter() {
    close(ends[1]);
    ends[1] = -1;
  }
  // Everything until all writers are gone; fails after 10 s.
  std::string ReadAll() {
    std::string text;
    for (;;) {
      pollfd wait{ends[0], POLLIN, 0};
      if (poll(&wait, 1, 10'000) <= 0) {
        ADD_FAILURE() << "a writer still lives";
        return text;
      }
      char buffer[4096];
      const ssize_t got = read(ends[0], buffer, sizeof buffer);
      if (got <= 0) return text;
      text.append(buffer, static_cast<size_t>(got));
    }
  }
  int ends[2];
};

Process::Options Shell(const std::string& script) {
  Process::Options options;
  options.arguments = {"sh", "-c", script};
  return options;
}

Process MustStart(const Process::Options& options) {
  auto process = Process::Start(options);
  if (!process) {
    ADD_FAILURE() << process.error().message;
    std::abort();
  }
  return std::move(*process);
}

// The output of a shell script.
std::string Output(Process::Options options) {
  Pipe pipe;
  options.stdout_fd = pipe.ends[1];
  Process process = MustStart(options);
  pipe.CloseWriter();
  std::string text = pipe.ReadAll();
  process.Wait(10);
  return text;
}

TEST(Process, ReportsHowItsChildEnded) {
  Process seven = MustStart(Shell("exit 7"));
  const auto exit = seven.Wait(10);
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->code, 7);
  EXPECT_EQ(exit->signal, 0);
  EXPECT_FALSE(seven.running());
  Process killed = MustStart(Shell("kill -ABRT $$"));
  EXPECT_EQ(killed.Wait(10)->signal, SIGABRT);
}

TEST(Process, FailsIfTheProgramCannotStart) {
  Process::Options options;
  options.arguments = {"/nowhere/program", "x"};
  const auto process = Process::Start(options);
  ASSERT_FALSE(process);
  EXPECT_THAT(process.error().message,
              AllOf(HasSubstr("/nowhere/program"), HasSubstr("No such file")));
  options.arguments = {"/etc/passwd"};
  EXPECT_THAT(Process::Start(options).error().message, HasSubstr("denied"));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a failed child was not reaped";
}

int OpenDescriptors() {
  int open = 0;
  for (int fd = 0; fd < 256; ++fd) open += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return open;
}

// Starts children with at most `limit` descriptors; returns 0, or the number of the check that
// failed.
int StartWithFewDescriptors(rlim_t limit) {
  const rlimit few = {limit, limit};
  if (setrlimit(RLIMIT_NOFILE, &few) != 0) return 1;
  const int before = OpenDescriptors();
  Process::Options missing;
  missing.arguments = {"/nowhere/program"};
  if (Process::Start(missing)) return 2;  // the failure was not reported
  auto seven = Process::Start(Shell("exit 7"));
  if (!seven && seven.error().message.find("ulimit -n") == std::string::npos) return 3;
  if (seven && seven->Wait(10).value_or(Process::Exit()).code != 7) return 4;
  if (OpenDescriptors() != before) return 5;
  return waitpid(-1, nullptr, WNOHANG) == -1 ? 0 : 6;
}

TEST(Process, StartsOrReportsWhyNotForAnyDescriptorLimit) {
  for (rlim_t limit = 4; limit <= 32; ++limit) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // a hang ends by a signal
      _exit(StartWithFewDescriptors(limit));
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "with " << limit << " descriptors: exit " << WEXITSTATUS(status);
  }
}

TEST(Process, AddsToTheEnvironment) {
  setenv("PINION_TEST_KEPT", "kept", 1);
  setenv("PINION_TEST_CHANGED", "old", 1);
  auto options = Shell("echo $PINION_TEST_KEPT $PINION_TEST_CHANGED $PINION_TEST_NEW");
  options.environment = {{"PINION_TEST_CHANGED", "changed"}, {"PINION_TEST_NEW", "new"}};
  EXPECT_EQ(Output(options), "kept changed new\n");
}

TEST(Process, PassesDescriptorsUnderTheirNumbers) {
  Pipe first, second;
  // Crossed: each source has the number that the other one goes to.
  auto options = Shell(StrCat("echo one >&", second.ends[1], "; echo two >&", first.ends[1]));
  options.pass_fds = {{first.ends[1], second.ends[1]}, {second.ends[1], first.ends[1]}};
  MustStart(options).Wait(10);
  first.CloseWriter();
  second.CloseWriter();
  EXPECT_EQ(first.ReadAll(), "one\n");
  EXPECT_EQ(second.ReadAll(), "two\n");
}

TEST(Process, PassesNoOtherDescriptors) {
  Pipe pipe;
  fcntl(pipe.ends[1], F_SETFD, 0);  // as a library's that exec would keep
  auto options = Shell(StrCat("[ -e /proc/self/fd/", pipe.ends[1], " ] && echo leaked || echo no"));
  EXPECT_EQ(Output(options), "no\n");
}

TEST(Process, HasNoInputByDefault) { EXPECT_EQ(Output(Shell("cat; echo end")), "end\n"); }

TEST(Process, BindsItsChild) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(static_cast<size_t>(last), &mask)) --last;
  auto options = Shell("grep Cpus_allowed_list /proc/self/status");
  options.cpus = {last};
  EXPECT_EQ(Output(options), StrCat("Cpus_allowed_list:\t", last, "\n"));
  options.cpus = {1000};
  EXPECT_FALSE(Process::Start(options)) << "a cpu that is not there";
}

TEST(Process, WaitsNoLongerThanRequested) {
  Process process = MustStart(Shell("sleep 60"));
  EXPECT_FALSE(process.Wait(0));
  EXPECT_FALSE(process.Wait(0.02));
  EXPECT_TRUE(process.running());
  EXPECT_EQ(process.Stop(10).signal, SIGTERM);
}

TEST(Process, KillsAChildThatIgnoresSigtermAndItsChildren) {
  Pipe pipe;
  auto options = Shell("trap '' TERM; sleep 60 & echo ready; wait; sleep 60");
  options.stdout_fd = pipe.ends[1];
  Process process = MustStart(options);
  char ready[6];
  ASSERT_EQ(read(pipe.ends[0], ready, sizeof ready), 6);
  const int64_t start = NowNs();
  EXPECT_EQ(process.Stop(0.1).signal, SIGKILL);
  EXPECT_LT(SecondsSince(start), 30);
  pipe.CloseWriter();
  EXPECT_EQ(pipe.ReadAll(), "") << "the grandchild holds the pipe while it lives";
}

TEST(Process, EndsProcessesLeftBehindByAnEndedChild) {
  Pipe pipe;
  auto options = Shell("sleep 1000 & exit 3");
  options.stdout_fd = pipe.ends[1];
  Process child = MustStart(options);
  const auto exit = child.WaitAndEndGroup(10);
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->code, 3);
  pipe.CloseWriter();
  EXPECT_EQ(pipe.ReadAll(), "") << "the child's child had its output open";
}

TEST(Process, DiesWithItsParent) {
  Pipe pipe;
  const pid_t parent = fork();
  if (parent == 0) {
    auto options = Shell("exec sleep 60");
    options.stdout_fd = pipe.ends[1];
    auto process = Process::Start(options);
    raise(SIGKILL);  // no destructor, no handler: as in a crash
  }
  pipe.CloseWriter();
  waitpid(parent, nullptr, 0);
  pipe.ReadAll();  // ends when the grandchild is gone
}

// Starts children while signals come to all of its group; returns how often the handler ran in a
// child, in which it would write to this process's memory.
int HandlersRunByChildren() {
  static std::atomic<pid_t> self{0};
  static std::atomic<int> elsewhere{0};
  setpgid(0, 0);
  self = getpid();
  signal(SIGURG, [](int) { elsewhere += getpid() != self; });  // programs ignore it by default
  std::atomic<bool> done{false};
  std::thread sender([&] {
    while (!done) kill(0, SIGURG);
  });
  auto options = Shell("exit 0");
  options.own_group = false;
  for (int i = 0; i < 100; ++i) MustStart(options).Wait(10);
  done = true;
  sender.join();
  return std::min(int{elsewhere}, 100);
}

TEST(Process, RunsNoHandlerOfItsParent) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(HandlersRunByChildren());
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Process, LeavesTheSignalMaskOfTheThreadThatStartsIt) {
  sigset_t one, before, after;
  sigemptyset(&one);
  sigaddset(&one, SIGURG);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &one, &before), 0);
  EXPECT_EQ(Output(Shell("grep SigBlk /proc/self/status")), "SigBlk:\t0000000000000000\n");
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &before, &after), 0);
  for (int number = 1; number < SIGRTMIN; ++number)
    EXPECT_EQ(sigismember(&after, number), number == SIGURG || sigismember(&before, number) == 1)
        << number;
}

TEST(Process, IsKilledByItsDestructor) {
  Pipe pipe;
  {
    auto options = Shell("sleep 60");
    options.stdout_fd = pipe.ends[1];
    Process process = MustStart(options);
    Process moved = std::move(process);
    EXPECT_FALSE(process.running());  // NOLINT(bugprone-use-after-move): what it is left as
    EXPECT_TRUE(moved.running());
  }
  pipe.CloseWriter();
  EXPECT_EQ(pipe.ReadAll(), "");
}

TEST(Process, SelfPathNamesThisProgram) { EXPECT_THAT(SelfPath(), HasSubstr("test_engine_base")); }

}  // namespace
}  // namespace pinion
