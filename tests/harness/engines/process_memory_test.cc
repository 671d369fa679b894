#include "harness/engines/process_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "engine/base/process.h"

namespace pinion::harness {
namespace {

TEST(PeakMemory, CountsSharedPagesOnce) {
  constexpr size_t kBytes = size_t{32} << 20;
  void* const shared =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  std::memset(shared, 1, kBytes);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto* bytes = static_cast<volatile char*>(shared);
    char sum = 0;
    for (size_t i = 0; i < kBytes; i += 4096) sum = static_cast<char>(sum + bytes[i]);
    [[maybe_unused]] const ssize_t ignored = write(ready[1], &sum, 1);
    for (;;) pause();
  }
  char read_it = 0;
  ASSERT_EQ(read(ready[0], &read_it, 1), 1);
  const auto counted_apart = [&] { return PeakRssBytes(getpid()) + PeakRssBytes(child); };
  const uint64_t apart = counted_apart();
  const uint64_t together = PeakMemoryBytes({getpid(), child});
  // A process grows a little between two looks, and peaks never fall.
  EXPECT_LE(together, counted_apart() - kBytes + kBytes / 32);
  EXPECT_GE(together, kBytes);
  EXPECT_GE(together + kBytes + kBytes / 4, apart) << "and no more is left out";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_GE(PeakMemoryBytes({getpid()}), kBytes) << "nobody else has it now";
  munmap(shared, kBytes);
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace pinion::harness
