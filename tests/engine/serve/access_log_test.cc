#include "engine/serve/access_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "engine/base/json.h"

namespace pinion {
namespace {

using testing::HasSubstr;

AccessRecord Record(int number) {
  AccessRecord record;
  record.id = "id-" + std::to_string(number);
  record.client = "key 1";
  record.address = "10.0.0.9";
  record.method = "POST";
  record.path = "/v1/completions";
  record.status = 200;
  record.bytes_in = 12;
  record.bytes_out = 3456;
  record.seconds = 0.25;
  record.complete = true;
  return record;
}

TEST(AccessLog, IsOneObjectALine) {
  AccessRecord record = Record(1);
  record.path = "/\"\n\xff" + std::string(1000, 'x');
  const std::string line = AccessLine(record, 1'772'368'496'789'000'000);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto json = Json::Parse(line);
  ASSERT_TRUE(json) << line;
  EXPECT_EQ(json->Find("time")->string(), "2026-03-01T12:34:56.789Z");
  EXPECT_EQ(json->Find("id")->string(), "id-1");
  EXPECT_EQ(json->Find("address")->string(), "10.0.0.9");
  EXPECT_EQ(json->Find("status")->integer(), 200);
  EXPECT_EQ(json->Find("bytes_out")->integer(), 3456);
  EXPECT_EQ(json->Find("seconds")->number(), 0.25);
  EXPECT_LT(json->Find("path")->string().size(), 250u);
}

TEST(AccessLog, WritesAllLinesBeforeItEnds) {
  const auto path = std::filesystem::path(testing::TempDir()) / "access.log";
  std::filesystem::remove(path);
  for (int round = 0; round < 2; ++round) {  // the second appends
    auto log = AccessLog::Open(path);
    ASSERT_TRUE(log) << log.error().message;
    for (int i = 0; i < 500; ++i) (*log)->Add(Record(i));
  }
  std::ifstream file(path);
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines)
    EXPECT_THAT(line, HasSubstr("\"id-" + std::to_string(lines % 500) + "\""));
  EXPECT_EQ(lines, 1000);
}

TEST(AccessLog, SaysWhyItCannotOpen) {
  const auto log = AccessLog::Open("/no/such/folder/access.log");
  ASSERT_FALSE(log);
  EXPECT_THAT(log.error().message, HasSubstr("/no/such/folder/access.log"));
}

// Nobody reads the pipe, which is full after 64 KiB and the queue after 4 MiB: adding goes on.
TEST(AccessLog, NeverBlocks) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  constexpr int kLines = 60'000;  // about 10 MB
  {
    AccessLog log(ends[1]);
    for (int i = 0; i < kLines; ++i) log.Add(Record(i));
    // Now read all, so that it says what it dropped.
    std::string text;
    char chunk[64 << 10];
    while (text.find("\"dropped\":") == std::string::npos) {
      const ssize_t count = read(ends[0], chunk, sizeof chunk);
      ASSERT_GT(count, 0);
      text.append(chunk, static_cast<size_t>(count));
    }
    const size_t lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    EXPECT_LT(lines, static_cast<size_t>(kLines));
  }
  close(ends[0]);
}

// A folder of its own, gone at the end.
class AccessLogFile : public testing::Test {
 protected:
  ~AccessLogFile() override { std::filesystem::remove_all(folder_); }

  std::string Text(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Waits for the log's writer.
  bool Holds(const std::string& name, const std::string& text) const {
    return Until([&] { return Text(name).find(text) != std::string::npos; });
  }
  static bool Until(const std::function<bool()>& condition) {
    for (int i = 0; i < 3000; ++i) {
      if (condition()) return true;
      usleep(10'000);
    }
    return false;
  }

  const std::filesystem::path folder_ = [] {
    std::string name = testing::TempDir() + "access_log_XXXXXX";
    return std::filesystem::path(mkdtemp(name.data()));
  }();
  const std::filesystem::path path_ = folder_ / "log";
};

TEST_F(AccessLogFile, FollowsItsNameWhenItIsRotated) {
  auto log = AccessLog::Open(path_);
  ASSERT_TRUE(log);
  (*log)->Add(Record(1));
  ASSERT_TRUE(Holds("log", "\"id-1\""));
  std::filesystem::rename(path_, folder_ / "log.1");
  (*log)->Add(Record(2));
  EXPECT_TRUE(Holds("log", "\"id-2\""));
  EXPECT_EQ(Text("log.1").find("id-2"), std::string::npos);
  std::filesystem::rename(path_, folder_ / "log.2");
  std::ofstream(path_).close();  // some that rotate make the next file themselves
  (*log)->Add(Record(3));
  EXPECT_TRUE(Holds("log", "\"id-3\""));
}

TEST_F(AccessLogFile, FollowsItsNameWithoutALineIfAsked) {
  auto log = AccessLog::Open(path_);
  ASSERT_TRUE(log);
  std::filesystem::rename(path_, folder_ / "log.1");
  (*log)->FollowName();
  EXPECT_TRUE(Until([&] { return std::filesystem::exists(path_); }));
  (*log)->Add(Record(1));
  EXPECT_TRUE(Holds("log", "\"id-1\""));
  EXPECT_EQ(Text("log").substr(0, 1), "{");
}

TEST_F(AccessLogFile, OutlivesItsFolder) {
  std::filesystem::create_directory(folder_ / "logs");
  auto log = AccessLog::Open(folder_ / "logs" / "log");
  ASSERT_TRUE(log);
  std::filesystem::rename(folder_ / "logs", folder_ / "away");
  (*log)->Add(Record(1));
  EXPECT_TRUE(Holds("away/log", "\"id-1\""));
  std::filesystem::create_directory(folder_ / "logs");
  (*log)->Add(Record(2));
  EXPECT_TRUE(Holds("logs/log", "\"id-2\""));
}

TEST_F(AccessLogFile, TellsOfLinesThatCouldNotBeWritten) {
  std::filesystem::create_symlink("/dev/full", path_);
  auto log = AccessLog::Open(path_);
  ASSERT_TRUE(log);
  for (uint64_t i = 1; i <= 3; ++i) {
    (*log)->Add(Record(0));
    ASSERT_TRUE(Until([&] { return (*log)->dropped() == i; }));
  }
  std::filesystem::remove(path_);
  (*log)->Add(Record(4));
  EXPECT_TRUE(Holds("log", "\"id-4\""));
  EXPECT_THAT(Text("log"), HasSubstr("\"dropped\":3}\n"));
}

TEST_F(AccessLogFile, WaitsForNoReaderOfAFifo) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  auto log = AccessLog::Open(path_);
  ASSERT_TRUE(log) << log.error().message;
  (*log)->Add(Record(1));
  const int reader = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  char text[4096] = "";
  EXPECT_GT(read(reader, text, sizeof text - 1), 0);
  EXPECT_THAT(text, HasSubstr("\"id-1\""));
  close(reader);
}

}  // namespace
}  // namespace pinion
