#include "engine/host/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numaif.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

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
