#include "engine/base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include "engine/base/strings.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = StrCat(testing::TempDir(), "file_test_", getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const char* name) const { return folder_ + "/" + name; }
  std::string folder_;
};

TEST_F(FileTest, CheckWritablePredictsTheErrorOfWriteFile) {
  EXPECT_TRUE(CheckWritable(Path("new")));
  EXPECT_TRUE(CheckWritable("/dev/null"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "a check leaves nothing behind";
  const auto refused = CheckWritable(Path("missing/new"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, WriteFile(Path("missing/new"), "x").error().message);
  EXPECT_THAT(refused.error().message, HasSubstr("cannot create '" + Path("missing/new") + "':"));
  EXPECT_THAT(CheckWritable(folder_).error().message, HasSubstr("it is a folder"));
}

TEST_F(FileTest, ReadsBackTheWrittenText) {
  const std::string text("zero\0byte", 9);
  ASSERT_TRUE(WriteFile(Path("a"), "something longer that is replaced"));
  ASSERT_TRUE(WriteFile(Path("a"), text));
  EXPECT_EQ(ReadFile(Path("a")).value(), text);
  const auto files = std::filesystem::directory_iterator(folder_);
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "a temporary file was left";
}

TEST_F(FileTest, BoundsTheBytesFromADevice) {
  const auto text = ReadFile("/dev/zero", 1000);
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("'/dev/zero' is larger than 1,000 B"));
}

TEST_F(FileTest, ReadsAFifoIfSomebodyWritesToIt) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  const auto text = ReadFile(Path("fifo"));
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("no process writes to the FIFO '" + Path("fifo")));
  std::thread writer([this] {
    const int fd = open(Path("fifo").c_str(), O_WRONLY | O_CLOEXEC);
    usleep(50'000);
    EXPECT_EQ(write(fd, "text", 4), 4);
    close(fd);
  });
  EXPECT_EQ(ReadFile(Path("fifo")).value_or("none"), "text");
  writer.join();
}

TEST_F(FileTest, NamesTheFileThatIsMissing) {
  const auto text = ReadFile(Path("missing"));
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(text.error().message, HasSubstr(Path("missing")));
  EXPECT_EQ(MappedFile::Open(Path("missing")).error().code, ErrorCode::kNotFound);
  EXPECT_THAT(WriteFile(Path("no/folder"), "x").error().message, HasSubstr("no/folder"));
}

TEST_F(FileTest, WritesIntoAPipeInsteadOfReplacingIt) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  const int reader = open(Path("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(WriteFile(Path("pipe"), "text"));
  char got[8] = {};
  EXPECT_EQ(read(reader, got, sizeof got), 4);
  EXPECT_STREQ(got, "text");
  close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(Path("pipe")));
}

// Such a file has 4096 bytes by its size, whatever is in it.
TEST_F(FileTest, ReadsFilesOfSysfsWithinASmallLimit) {
  const auto online = ReadFile("/sys/devices/system/cpu/online", 64);
  ASSERT_TRUE(online) << online.error().message;
  EXPECT_EQ(online->front(), '0');
}

TEST_F(FileTest, RefusesFoldersAndLargeFiles) {
  EXPECT_THAT(ReadFile(folder_).error().message, HasSubstr("is a folder"));
  EXPECT_THAT(MappedFile::Open(folder_).error().message, HasSubstr("not a regular file"));
  ASSERT_TRUE(WriteFile(Path("big"), std::string(1001, 'x')));
  EXPECT_THAT(ReadFile(Path("big"), 1000).error().message, HasSubstr("1,000 B"));
  EXPECT_EQ(ReadFile(Path("big"), 1001)->size(), 1001u);
}

TEST_F(FileTest, MapsNoFifoAndDoesNotWaitForItsWriter) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_EXIT(
      {
        alarm(20);  // a call that waits ends by this signal instead
        const auto file = MappedFile::Open(Path("fifo"));
        fputs(file ? "mapped" : file.error().message.c_str(), stderr);
        _exit(0);
      },
      ::testing::ExitedWithCode(0), "fifo' is not a regular file");
}

TEST_F(FileTest, MapsTheWholeFile) {
  const std::string text(10'000, 'm');
  ASSERT_TRUE(WriteFile(Path("m"), text));
  const auto file = MappedFile::Open(Path("m")).value();
  EXPECT_EQ(file->path(), Path("m"));
  ASSERT_EQ(file->size_bytes(), text.size());
  EXPECT_EQ(std::memcmp(file->data(), text.data(), text.size()), 0);
  file->Release(0, text.size());
  file->Release(5000, 1 << 20);  // beyond the end: nothing
  EXPECT_EQ(std::memcmp(file->data(), text.data(), text.size()), 0) << "read again from the file";
}

TEST_F(FileTest, MapsAnEmptyFile) {
  ASSERT_TRUE(WriteFile(Path("empty"), ""));
  EXPECT_EQ(MappedFile::Open(Path("empty")).value()->size_bytes(), 0u);
}

class TemporaryFileTest : public FileTest {
 protected:
  void SetUp() override {
    FileTest::SetUp();
    if (const char* before = std::getenv("TMPDIR")) before_ = before;
  }
  void TearDown() override {
    before_ ? setenv("TMPDIR", before_->c_str(), 1) : unsetenv("TMPDIR");
    FileTest::TearDown();
  }
  std::optional<std::string> before_;
};

TEST_F(TemporaryFileTest, HasNoNameAndHoldsTheWrittenText) {
  setenv("TMPDIR", folder_.c_str(), 1);
  auto file = TemporaryFile::Make("a test");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  ASSERT_TRUE(file->Write("some text"));
  EXPECT_EQ(ReadFile(file->path()).value(), "some text");
  char first = 0;
  EXPECT_EQ(read(file->fd(), &first, 1), 1);
  EXPECT_EQ(first, 's');
}

TEST_F(TemporaryFileTest, ErrorNamesTheMissingFolderAndTmpdir) {
  setenv("TMPDIR", Path("missing").c_str(), 1);
  const auto file = TemporaryFile::Make("a test");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().message, "cannot make a temporary file for a test in '" + Path("missing") +
                                      "': No such file or directory; set TMPDIR to another "
                                      "folder");
  setenv("TMPDIR", "", 1);
  EXPECT_EQ(TemporaryFolder(), "/tmp");
}

}  // namespace
}  // namespace pinion
