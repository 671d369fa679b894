#include "engine/serve/own_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace pinion {
namespace {

TEST(OwnNames, HoldTheHostNameAndTheLoopbackAddress) {
  const auto names = OwnNames();
  ASSERT_TRUE(names) << names.error().message;
  char name[256] = "";
  ASSERT_EQ(gethostname(name, sizeof name - 1), 0);
  EXPECT_THAT(*names, testing::Contains(name));
  EXPECT_THAT(*names, testing::Contains("127.0.0.1"));
}

}  // namespace
}  // namespace pinion
