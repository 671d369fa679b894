#include "engine/base/ring.h"

#include <gtest/gtest.h>

#include <vector>

namespace pinion {
namespace {

TEST(Ring, GoesFromTheOldestToTheNewestInPlace) {
  Ring<int> ring(3);
  EXPECT_TRUE(ring.empty());
  for (int i = 0; i < 2; ++i) ring.Push() = i;
  const int* newest = &ring.newest();
  for (int i = 2; i < 100; ++i) {
    EXPECT_EQ(ring.oldest(), i - 2);
    EXPECT_EQ(&ring.newest(), newest);
    ring.Push() = i;
    EXPECT_EQ(ring.newest(), i);
    newest = &ring.newest();
    EXPECT_TRUE(ring.full());
    ring.Pop();
    EXPECT_EQ(ring.size(), 2u);
  }
}

TEST(Ring, ANewOneHasTheMemoryOfOneThatHasGone) {
  Ring<std::vector<int>> ring(1);
  ring.Push().resize(50);
  const int* memory = ring.oldest().data();
  ring.Pop();
  EXPECT_EQ(ring.Push().data(), memory);
}

}  // namespace
}  // namespace pinion
