#include "engine/weights/shared_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "engine/base/progress.h"
#include "engine/checkpoint/model.h"
#include "engine/weights/weights.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

const SharedWeights::Layout kTwoRanks = {"these", {3 * kHugePageBytes + 5, 100}};

// A child process that calls `body` and then waits to be killed; body gets a pipe to write to.
class Child {
 public:
  explicit Child(const std::function<void(int)>& body) {
    EXPECT_EQ(pipe(pipe_), 0);
    pid_ = fork();
    if (pid_ != 0) {
      close(pipe_[1]);  // so that the end of a child that says nothing is seen
      return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body(pipe_[1]);
    for (;;) pause();
  }
  ~Child() {
    if (pid_ > 0) Kill();
    close(pipe_[0]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  char Read() const {
    char byte = 0;
    EXPECT_EQ(read(pipe_[0], &byte, 1), 1);
    return byte;
  }
  void Kill() {
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  int pipe_[2] = {-1, -1};
  pid_t pid_ = -1;
};

void Say(int pipe, char what) { [[maybe_unused]] const ssize_t ignored = write(pipe, &what, 1); }

// Fills rank r's part with the number r + 1.
void Fill(const SharedWeights& shared) {
  for (size_t rank = 0; rank < 2; ++rank) {
    const Pages pages = *shared.Map(rank, {});
    std::memset(pages.data(), static_cast<int>(rank) + 1, pages.size_bytes());
  }
}

void ExpectFilled(const SharedWeights& shared) {
  for (size_t rank = 0; rank < 2; ++rank) {
    const Pages pages = shared.Map(rank, {}).value();
    ASSERT_EQ(pages.size_bytes(), kTwoRanks.bytes[rank]);
    for (size_t i = 0; i < pages.size_bytes(); ++i)
      ASSERT_EQ(pages.as<char>()[i], static_cast<char>(rank + 1)) << i;
  }
}

void Pack(int fd) {
  auto shared = SharedWeights::Join(fd, kTwoRanks);
  ASSERT_TRUE(shared) << shared.error().message;
  ASSERT_FALSE(shared->packed());
  Fill(*shared);
  ASSERT_TRUE(shared->Finish());
}

TEST(SharedWeights, LaterProcessesReadTheWeightsThatTheFirstPacked) {
  const auto file = SharedWeights::MakeFile().value();
  Pack(file.fd());
  for (int i = 0; i < 2; ++i) {
    auto later = SharedWeights::Join(file.fd(), kTwoRanks);
    ASSERT_TRUE(later) << later.error().message;
    EXPECT_TRUE(later->packed());
    ExpectFilled(*later);
  }
  EXPECT_GE(SharedWeights::ResidentBytes(file.fd()), 3 * kHugePageBytes);
}

TEST(SharedWeights, OthersWaitUntilTheCopyIsComplete) {
  const auto file = SharedWeights::MakeFile().value();
  const Child packer([&](int pipe) {
    auto shared = SharedWeights::Join(file.fd(), kTwoRanks);
    Say(pipe, shared && !shared->packed() ? 'p' : '!');
    usleep(200'000);
    Fill(*shared);
    Say(pipe, shared->Finish() ? 'f' : '!');
  });
  ASSERT_EQ(packer.Read(), 'p');
  auto other = SharedWeights::Join(file.fd(), kTwoRanks);
  ASSERT_TRUE(other);
  EXPECT_TRUE(other->packed());
  ExpectFilled(*other);
}

// A watcher would otherwise take it for one that hangs.
TEST(SharedWeights, WaitingIsProgressAndAPackerThatDiesIsReplaced) {
  const auto file = SharedWeights::MakeFile().value();
  const auto counts = progress::MakeCounts().value();
  ASSERT_TRUE(progress::CountIn(counts.fd()));
  Child packer([&](int pipe) {
    auto shared = SharedWeights::Join(file.fd(), kTwoRanks);
    Fill(*shared);
    Say(pipe, 'p');
    for (;;) pause();  // with the lock
  });
  ASSERT_EQ(packer.Read(), 'p');
  std::atomic<bool> joined = false;
  std::thread waiter([&] {
    auto next = SharedWeights::Join(file.fd(), kTwoRanks);
    joined = true;
    ASSERT_TRUE(next);
    EXPECT_FALSE(next->packed());
    const Pages pages = next->Map(0, {}).value();
    EXPECT_EQ(pages.as<char>()[0], 0) << "half a copy is thrown away";
    Fill(*next);
    EXPECT_TRUE(next->Finish());
  });
  const uint64_t before = progress::ReadCounts(counts);
  for (int i = 0; progress::ReadCounts(counts) == before && !joined && i < 10'000; ++i)
    usleep(1000);
  EXPECT_NE(progress::ReadCounts(counts), before);
  EXPECT_FALSE(joined);
  packer.Kill();
  waiter.join();
  const auto last = SharedWeights::Join(file.fd(), kTwoRanks);
  ASSERT_TRUE(last && last->packed());
  ExpectFilled(*last);
}

// One that gives up without dying, because of an error, leaves the lock as well.
TEST(SharedWeights, APackerThatGivesUpIsReplaced) {
  const auto file = SharedWeights::MakeFile().value();
  { ASSERT_TRUE(SharedWeights::Join(file.fd(), kTwoRanks)); }
  const Child next([&](int pipe) {
    auto shared = SharedWeights::Join(file.fd(), kTwoRanks);
    Say(pipe, shared && !shared->packed() ? 'p' : '!');
  });
  EXPECT_EQ(next.Read(), 'p');
}

TEST(SharedWeights, OtherWeightsAreRefused) {
  const auto file = SharedWeights::MakeFile().value();
  Pack(file.fd());
  SharedWeights::Layout larger = kTwoRanks, other = kTwoRanks;
  larger.bytes[1] += kHugePageBytes;
  other.identity = "others";
  for (const auto& layout : {larger, other}) {
    const auto refused = SharedWeights::Join(file.fd(), layout);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(refused.error().message, HasSubstr("another checkpoint or with other options"));
    EXPECT_THAT(refused.error().message, HasSubstr("restart the server"));
  }
  const auto same = SharedWeights::Join(file.fd(), kTwoRanks);
  EXPECT_TRUE(same && same->packed());
}

TEST(SharedWeights, AClearedFileTakesNoMemoryAndIsPackedAgain) {
  const auto file = SharedWeights::MakeFile().value();
  Pack(file.fd());
  SharedWeights::Clear(file);
  EXPECT_EQ(SharedWeights::ResidentBytes(file.fd()), 0u);
  Pack(file.fd());
}

// The kernel would end the process (SIGXFSZ).
TEST(SharedWeights, ALimitOnFilesIsAnError) {
  const auto file = SharedWeights::MakeFile().value();
  const Child limited([&](int pipe) {
    const rlimit limit = {kHugePageBytes, kHugePageBytes};
    setrlimit(RLIMIT_FSIZE, &limit);
    Say(pipe, SharedWeights::Join(file.fd(), kTwoRanks) ? '!' : 'r');
  });
  EXPECT_EQ(limited.Read(), 'r');
  const auto broken = SharedWeights::Join(-1, kTwoRanks);
  ASSERT_FALSE(broken);
  EXPECT_THAT(broken.error().message, HasSubstr("--share-weights off"));
}

// ---- What LoadWeights makes of it --------------------------------------------------------------

Plan TwoRanks() {
  Plan plan;
  plan.ranks = {{0, {}, {}, 2}, {1, {}, {}, 1}};
  return plan;
}

std::vector<RankWeights> Load(const ModelFiles& files, const TensorSource& source, Ranks& ranks,
                              const SharedShards& shared = {}) {
  auto loaded = LoadWeights(files.spec, kernels::Dtype::kBf16, true, source, ranks, {}, {}, shared);
  EXPECT_TRUE(loaded) << loaded.error().message;
  return std::move(*loaded);
}

void ExpectSame(const std::vector<RankWeights>& found, const std::vector<RankWeights>& expected,
                const std::string& who) {
  for (size_t rank = 0; rank < 2; ++rank) {
    const Pages &own = expected[rank].storage, &shared = found[rank].storage;
    ASSERT_EQ(shared.size_bytes(), own.size_bytes());
    EXPECT_EQ(std::memcmp(shared.data(), own.data(), own.size_bytes()), 0) << who << ", " << rank;
    EXPECT_EQ(found[rank].head.data - shared.data(), expected[rank].head.data - own.data());
  }
}

TEST(SharedWeights, AreThoseThatAnEngineWouldPackForItself) {
  for (const std::string& name : tests::ModelFixtures()) {
    const auto files = FindModel(tests::TestData() + "/models/" + name);
    ASSERT_TRUE(files) << name;
    if (files->scheme) continue;  // packed the same way, from other formats
    auto source = OpenWeights(*files);
    ASSERT_TRUE(source) << name;
    auto ranks = Ranks::Start(TwoRanks());
    ASSERT_TRUE(ranks);
    const auto own = Load(*files, **source, **ranks);
    const auto file = SharedWeights::MakeFile().value();
    SharedWeights::Layout layout{name, {}};
    for (const RankWeights& rank : own) layout.bytes.push_back(rank.storage.size_bytes());
    auto first = SharedWeights::Join(file.fd(), layout).value();
    ExpectSame(Load(*files, **source, **ranks, {&first, 0}), own, name + ", packed");
    ASSERT_TRUE(first.Finish());
    auto second = SharedWeights::Join(file.fd(), layout).value();
    ASSERT_TRUE(second.packed());
    ExpectSame(Load(*files, **source, **ranks, {&second, 0}), own, name + ", mapped");
  }
}

TEST(SharedWeightsDeathTest, AProcessThatWritesToThemAfterwardsEnds) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto files = FindModel("preset:tiny");
  auto source = OpenWeights(*files);
  ASSERT_TRUE(source);
  const auto write = [&] {
    auto ranks = Ranks::Start(TwoRanks());
    const auto file = SharedWeights::MakeFile().value();
    SharedWeights::Layout layout{"tiny", {}};
    for (int rank = 0; rank < 2; ++rank)
      layout.bytes.push_back(ShardWeightBytes(files->spec, kernels::Dtype::kBf16, true, 2, rank));
    auto shared = SharedWeights::Join(file.fd(), layout).value();
    const auto weights = Load(*files, **source, **ranks, {&shared, 0});
    signal(SIGSEGV, SIG_DFL);  // AddressSanitizer would end the process in its own way
    *weights[0].storage.as<volatile char>() = 1;
  };
  EXPECT_EXIT(write(), testing::KilledBySignal(SIGSEGV), "");
}

}  // namespace
}  // namespace pinion
