#include "engine/host/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numaif.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "engine/base/memory_file.h"
#include "engine/host/huge_pages.h"
#include "engine/host/runtime_choice.h"

namespace pinion {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Pages, AreZeroedAlignedAndWritable) {
  auto pages = Pages::Allocate(10'000).value();
  EXPECT_EQ(pages.size_bytes(), 10'000u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pages.data()) % 4096, 0u);
  for (size_t i = 0; i < 10'000; ++i) ASSERT_EQ(pages.as<char>()[i], 0);
  std::memset(pages.data(), 1, 10'000);
}

TEST(Pages, AreAlignedToHugePagesFromThatSizeOn) {
  for (const size_t bytes : {kHugePageBytes, kHugePageBytes + 1, 5 * kHugePageBytes - 4096}) {
    const auto pages = Pages::Allocate(bytes).value();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pages.data()) % kHugePageBytes, 0u) << bytes;
    EXPECT_EQ(pages.size_bytes(), bytes);
    pages.as<char>()[bytes - 1] = 1;
  }
}

TEST(Pages, OfNoBytesAreEmpty) {
  const auto pages = Pages::Allocate(0).value();
  EXPECT_EQ(pages.data(), nullptr);
  EXPECT_EQ(pages.size_bytes(), 0u);
}

TEST(Pages, MoveTheirOwnership) {
  auto first = Pages::Allocate(4096).value();
  auto second = Pages::Allocate(8192).value();
  std::byte* const data = first.data();
  second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.size_bytes(), 4096u);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): the rule
}

TEST(Pages, ErrorNamesTheSizeThatIsUnavailable) {
  const auto pages = Pages::Allocate(size_t{1} << 60);
  ASSERT_FALSE(pages);
  EXPECT_EQ(pages.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(pages.error().message, HasSubstr("1152921504606846976"));
}

// The policy of the kernel for an address; nothing if this process may not ask.
std::optional<int> PolicyOf(const void* data) {
  int policy = -1;
  void* address = const_cast<void*>(data);
  if (get_mempolicy(&policy, nullptr, 0, address, MPOL_F_ADDR) != 0) return std::nullopt;
  return policy;
}

// Explicitly local memory is what automatic NUMA balancing leaves alone.
TEST(Pages, AreLocalUnlessTheProcessHasAPolicy) {
  const auto plain = Pages::Allocate(10'000).value();
  const auto policy = PolicyOf(plain.data());
  if (!policy) GTEST_SKIP() << "get_mempolicy: " << std::strerror(errno);
  EXPECT_THAT(*policy, AnyOf(MPOL_LOCAL, MPOL_PREFERRED));  // the latter before Linux 5.14
  std::thread([] {                                          // a policy is a thread's own
    const unsigned long node = 1;
    ASSERT_EQ(set_mempolicy(MPOL_INTERLEAVE, &node, 2), 0) << std::strerror(errno);
    const auto interleaved = Pages::Allocate(10'000).value();
    EXPECT_EQ(PolicyOf(interleaved.data()), MPOL_DEFAULT) << "it has one of its own";
  })
      .join();
}

TEST(Pages, OfAFileAreThoseOfAllItsMappings) {
  const auto file = MemoryFile::Make("test").value();
  ASSERT_EQ(ftruncate(file.fd(), 3 * kHugePageBytes), 0);
  const size_t bytes = kHugePageBytes + 4096;
  const auto written = Pages::Map(file.fd(), kHugePageBytes, bytes, Pages::Access::kWrite).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(written.data()) % kHugePageBytes, 0u);
  EXPECT_EQ(written.as<char>()[bytes - 1], 0);
  std::memset(written.data(), 7, bytes);
  const auto read = Pages::Map(file.fd(), kHugePageBytes, bytes, Pages::Access::kRead).value();
  EXPECT_NE(read.data(), written.data());
  EXPECT_EQ(std::memcmp(read.data(), written.data(), bytes), 0);
  if (const MemoryNodes nodes = NodesOf(read.data(), bytes); nodes.unknown.empty()) {
    uint64_t resident = 0;
    for (const auto& [node, size] : nodes.bytes_of_node) resident += size;
    EXPECT_EQ(resident, bytes) << "before it is read";
  }
  if (const auto policy = PolicyOf(written.data()))
    EXPECT_THAT(*policy, AnyOf(MPOL_LOCAL, MPOL_PREFERRED));
  EXPECT_EQ(Pages::Map(-1, 0, 0, Pages::Access::kRead)->data(), nullptr);
  EXPECT_FALSE(Pages::Map(-1, 0, 4096, Pages::Access::kRead));
}

uint64_t HugeBytesOfFiles() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  uint64_t kib = 0;
  for (std::string word; rollup >> word;)
    if (word == "ShmemPmdMapped:") rollup >> kib;
  return kib << 10;
}

// Unlike private memory, it is not made of huge pages by itself under the kernel's usual setting.
TEST(MakeHuge, JoinsThePagesOfAFileAndKeepsTheirContents) {
  if (!SharedPagesAreHuge()) GTEST_SKIP() << "the kernel gives none";
  const auto file = MemoryFile::Make("test").value();
  const size_t bytes = 2 * kHugePageBytes + 4096;
  ASSERT_EQ(ftruncate(file.fd(), 3 * kHugePageBytes), 0);
  const auto pages = Pages::Map(file.fd(), 0, bytes, Pages::Access::kWrite).value();
  std::memset(pages.data(), 7, bytes - 100);
  MakeHuge(pages.data() + 8, bytes - 8);  // the second one alone is whole
  EXPECT_GE(HugeBytesOfFiles(), kHugePageBytes);
  MakeHuge(pages.data(), bytes);
  EXPECT_GE(HugeBytesOfFiles(), 2 * kHugePageBytes);
  for (size_t i = 0; i < bytes - 100; ++i) ASSERT_EQ(pages.as<char>()[i], 7) << i;
  setenv(kHugePagesVariable, "0", 1);
  EXPECT_FALSE(SharedPagesAreHuge() || PrivatePagesAreHuge() ||
               MakeHuge(pages.data(), pages.size_bytes()));
  unsetenv(kHugePagesVariable);
}

TEST(TouchPages, ChangesNothing) {
  Pages pages = *Pages::Allocate(1 << 20);
  for (size_t i = 0; i < pages.size_bytes(); ++i) pages.data()[i] = static_cast<std::byte>(i * 7);
  TouchPages(pages.data() + 5, pages.size_bytes() - 5);
  for (size_t i = 0; i < pages.size_bytes(); ++i)
    ASSERT_EQ(pages.data()[i], static_cast<std::byte>(i * 7)) << i;
}

TEST(NodesOf, CountsTouchedPagesOnly) {
  constexpr size_t kBytes = 64 * 4096;  // below a huge page: touched one by one
  const auto pages = Pages::Allocate(kBytes).value();
  EXPECT_THAT(NodesOf(pages.data(), kBytes).bytes_of_node, IsEmpty());
  EXPECT_THAT(NodesOf(nullptr, 0).bytes_of_node, IsEmpty());
  std::memset(pages.data(), 1, kBytes / 2);
  uint64_t touched = 0;
  int last_node = -1;
  const MemoryNodes nodes = NodesOf(pages.data(), kBytes);
  if (!nodes.unknown.empty()) GTEST_SKIP() << nodes.unknown;
  for (const auto& [node, bytes] : nodes.bytes_of_node) {
    EXPECT_GT(node, last_node);
    last_node = node;
    touched += bytes;
  }
  EXPECT_EQ(touched, kBytes / 2);
}

}  // namespace
}  // namespace pinion
