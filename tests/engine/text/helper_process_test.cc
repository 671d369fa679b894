// Every helper, whatever its program, is the system's Python, has limits, and ends.

#include "engine/text/helper_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/text/frames.h"

namespace pinion {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

constexpr int64_t kPatienceNs = 60'000'000'000;
constexpr uint64_t kMaxDataBytes = uint64_t{512} << 20;
constexpr const char* kEcho = "def handle(text): return text";

HelperProcess StartOf(const HelperProgram& program, std::optional<int> passed = {}) {
  auto started = StartHelper(program, passed);
  EXPECT_TRUE(started) << started.error().message;
  return std::move(*started);
}

HelperProcess StartSource(const char* source) {
  return StartOf({"some-helper", {{"some_helper", source}}, "", kMaxDataBytes});
}

std::string Ask(HelperProcess& helper, const std::string& request) {
  EXPECT_TRUE(WriteFrame(helper.socket.get(), request, NowNs() + kPatienceNs));
  auto answer = ReadFrame(helper.socket.get(), NowNs() + kPatienceNs);
  return answer ? *answer : answer.error().message;
}

// The value of an expression in a helper that has imported these modules.
std::string Value(const std::string& modules, const std::string& expression) {
  const std::string source =
      StrCat("import ", modules, "\ndef handle(text): return str(", expression, ")");
  HelperProcess helper = StartSource(source.c_str());
  return Ask(helper, "");
}

TEST(Helper, AnswersByItsLastModule) {
  HelperProcess helper = StartOf({"some-helper",
                                  {{"first", "WORD = 'a'"},
                                   {"second",
                                    "import first\n"
                                    "def handle(text): return first.WORD + text"}},
                                  "",
                                  kMaxDataBytes});
  EXPECT_EQ(Ask(helper, "b"), "ab");
  const std::string large(3 << 20, 'x');  // more than the socket holds
  EXPECT_EQ(Ask(helper, large), "a" + large);
  EXPECT_EQ(Ask(helper, "é"), "aé");
}

TEST(Helper, SaysFirstWhyItCannotRun) {
  HelperProcess helper = StartSource("import nowhere");
  const auto first = ReadFrame(helper.socket.get(), NowNs() + kPatienceNs);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(*first, R"({"error": "ModuleNotFoundError: No module named 'nowhere'"})");
}

TEST(Helper, HasLimits) {
  const std::string bytes = std::to_string(kMaxDataBytes);
  EXPECT_EQ(Value("resource", "resource.getrlimit(resource.RLIMIT_DATA)"),
            StrCat("(", bytes, ", ", bytes, ")"));
  EXPECT_EQ(Value("resource", "resource.getrlimit(resource.RLIMIT_CORE)"), "(0, 0)");
  EXPECT_EQ(Value("sys", "sys.getrecursionlimit()"), "1000");
}

Process StartSleep() {
  Process::Options options;
  options.arguments = {"sleep", "600"};
  auto started = Process::Start(options);
  EXPECT_TRUE(started) << started.error().message;
  return std::move(*started);
}

// What LimitMemory makes of a process with these limits.
rlimit Limited(rlimit before) {
  const Process process = StartSleep();
  EXPECT_EQ(prlimit(process.pid(), RLIMIT_DATA, &before, nullptr), 0);
  const Status done = LimitMemory(process.pid(), kMaxDataBytes);
  EXPECT_TRUE(done) << done.error().message;
  rlimit after{};
  EXPECT_EQ(prlimit(process.pid(), RLIMIT_DATA, nullptr, &after), 0);
  return after;
}

TEST(LimitMemory, LowersALimitAndRaisesNone) {
  constexpr rlim_t kLow = kMaxDataBytes / 2, kHigh = kMaxDataBytes * 2;
  const rlimit both = Limited({kLow, kLow}), one = Limited({kLow, kHigh});
  EXPECT_EQ(both.rlim_cur, kLow);
  EXPECT_EQ(both.rlim_max, kLow);
  EXPECT_EQ(one.rlim_cur, kLow);
  EXPECT_EQ(one.rlim_max, kMaxDataBytes);
  EXPECT_EQ(Limited({kHigh, kHigh}).rlim_cur, kMaxDataBytes);
}

TEST(LimitMemory, SaysWhyItCannot) {
  Process process = StartSleep();
  const pid_t pid = process.pid();
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  ASSERT_TRUE(process.Wait(60));
  const Status done = LimitMemory(pid, kMaxDataBytes);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "cannot limit the memory of a helper process: No such process");
}

// From now on no process can be limited by this one.
void RefuseLimits() {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prlimit64, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(filter), filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    std::perror("cannot filter system calls");
}

TEST(Helper, IsNotStartedWithoutLimits) {
  const auto start = [] {
    RefuseLimits();
    const auto started = StartHelper({"some-helper", {{"some_helper", kEcho}}, "", kMaxDataBytes});
    std::fputs(started ? "it runs" : started.error().message.c_str(), stderr);
    std::_Exit(0);
  };
  EXPECT_EXIT(start(), testing::ExitedWithCode(0),
              "^cannot limit the memory of a helper process: Operation not permitted$");
}

TEST(Helper, IsTheSystemsPythonInAnyEnvironment) {
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/nowhere", 1);
  setenv("PYTHONHOME", "/nowhere", 1);
  setenv("PYTHONPATH", "/nowhere", 1);
  setenv("LC_ALL", "C", 1);
  EXPECT_EQ(Value("sys", "('/nowhere' in sys.path, sys.flags.isolated, sys.flags.utf8_mode)"),
            "(False, 1, 1)");
  for (const char* name : {"PYTHONHOME", "PYTHONPATH", "LC_ALL"}) unsetenv(name);
  setenv("PATH", path.c_str(), 1);
}

TEST(Helper, ImportsFromItsFolderOfPackages) {
  const auto folder = std::filesystem::temp_directory_path() / StrCat("packages_", getpid());
  std::filesystem::create_directory(folder);
  ASSERT_TRUE(WriteFile(folder / "a_package.py", "WORD = 'there'"));
  HelperProcess helper = StartOf({"some-helper",
                                  {{"some_helper",
                                    "import a_package, sys\n"
                                    "def handle(text): return f'{a_package.WORD} {sys.path[0]}'"}},
                                  folder.string(),
                                  kMaxDataBytes});
  EXPECT_EQ(Ask(helper, ""), StrCat("there ", folder.string()));
  EXPECT_FALSE(std::filesystem::exists(folder / "__pycache__")) << "the folder may be anybody's";
  std::filesystem::remove_all(folder);
}

TEST(Helper, GetsTheDescriptorThatIsPassed) {
  const int passed = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  HelperProcess helper =
      StartOf({"some-helper",
               {{"some_helper", "import os\ndef handle(text): return str(os.read(int(text), 2))"}},
               "",
               kMaxDataBytes},
              passed);
  EXPECT_EQ(Ask(helper, std::to_string(kHelperPassed)), R"(b'\x00\x00')");
  close(passed);
}

TEST(Helper, IsNamedInTheListOfProcesses) {
  HelperProcess helper = StartSource(kEcho);
  ASSERT_EQ(Ask(helper, "x"), "x");
  const auto line = ReadFile(StrCat("/proc/", helper.process.pid(), "/cmdline"));
  ASSERT_TRUE(line);
  EXPECT_THAT(*line, EndsWith(std::string("\0some-helper\0", 13)));
  EXPECT_THAT(*line, testing::Not(HasSubstr("handle"))) << "its source is not shown";
}

TEST(Helper, EndsWithItsInput) {
  HelperProcess helper = StartSource(kEcho);
  ASSERT_EQ(Ask(helper, "x"), "x");
  helper.socket = Descriptor();
  const auto exit = helper.process.Wait(60);
  ASSERT_TRUE(exit) << "it still runs";
  EXPECT_EQ(exit->code, 0);
}

TEST(Helper, EndsWithOneLineWhenARequestFails) {
  testing::internal::CaptureStderr();
  HelperProcess helper = StartSource("def handle(text): raise ValueError(text)");
  EXPECT_EQ(Ask(helper, "x"), "the other side is gone");
  const auto exit = helper.process.Wait(60);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "pinion: the some-helper failed: ValueError: x\n");
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->code, 1);
}

}  // namespace
}  // namespace pinion
