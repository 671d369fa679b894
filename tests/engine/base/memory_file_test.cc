#include "engine/base/memory_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace pinion {
namespace {

TEST(MemoryFile, IsReadAsAWholeFromItsBeginning) {
  auto file = MemoryFile::Make("a test");
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_TRUE(file->Write("what a child reads"));
  char start[4] = {};
  ASSERT_EQ(read(file->fd(), start, sizeof start), 4);
  EXPECT_EQ(std::string(start, sizeof start), "what");
  EXPECT_EQ(file->Text(100).value(), "what a child reads");
}

TEST(MemoryFile, RefusesToReadMoreThanItsReaderAllows) {
  auto file = MemoryFile::Make("a test's result");
  ASSERT_TRUE(file && file->Write("four and more"));
  const auto text = file->Text(4);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().message, "a test's result is larger than 4 B");
}

}  // namespace
}  // namespace pinion
