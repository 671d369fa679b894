#include "harness/counters/at_rest.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>

namespace pinion::harness {
namespace {

bool Never() { return false; }

// A process of two that do so until they are killed.
class Family {
 public:
  explicit Family(void (*lives)()) {
    root_ = fork();
    if (root_ != 0) return;
    setpgid(0, 0);
    if (fork() >= 0) lives();
    _exit(0);
  }
  ~Family() {
    kill(-root_, SIGKILL);
    waitpid(root_, nullptr, 0);
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;
  pid_t root() const { return root_; }

 private:
  pid_t root_ = 0;
};

void Compute() {
  for (;;) getppid();
}
void Wait() {
  for (;;) pause();
}

TEST(AwaitRest, WaitsForProcessesThatComputeAndForNoOthers) {
  const Family waits(&Wait);
  EXPECT_TRUE(AwaitRest({waits.root()}, 600, &Never));
  const Family computes(&Compute);
  EXPECT_FALSE(AwaitRest({waits.root(), computes.root()}, 1, &Never)) << "at its limit";
  EXPECT_FALSE(AwaitRest({computes.root()}, 600, [] { return true; })) << "it was stopped";
  EXPECT_TRUE(AwaitRest({waits.root()}, 600, &Never));
}

}  // namespace
}  // namespace pinion::harness
