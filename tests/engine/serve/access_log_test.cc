#include "engine/serve/access_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "engine/base/json.h"

namespace pinion {
namespace {

using testing::HasSubstr;

AccessRecord Record(int number) {
  AccessRecord record;
  record.id = "id-" + std::to_string(number);
  record.client = "key 1";
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

}  // namespace
}  // namespace pinion
