#include "harness/report/live_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "tests/harness/report/planted.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines = Split(text, '\n');
  lines.pop_back();  // after the last line's end
  return lines;
}

size_t Columns(const std::string& text) {
  size_t columns = 0;
  for (const char c : text) columns += (c & 0xC0) != 0x80 ? 1 : 0;
  return columns;
}

TEST(LiveTable, RanksTheCandidatesStillInTheRace) {
  const auto lines = Lines(LiveTable(PlantedResults(), 120, 20));
  ASSERT_EQ(lines.size(), 4u);  // heading, two rows (one is dropped), drift
  EXPECT_THAT(lines[0], HasSubstr("balanced against the defaults, after 6 rounds"));
  EXPECT_THAT(lines[1],
              HasSubstr("  1 ████████████████████ 727 tok/s    +42.0 % [+38.4 to +45.5 %]"));
  EXPECT_THAT(lines[1], HasSubstr("threads_bind=0-1, isa=avx2"));
  EXPECT_THAT(lines[2], HasSubstr("  2 ██████████████······ 512 tok/s    default"));
  EXPECT_THAT(lines[3], HasSubstr("moved by 1.0 %"));
}

TEST(LiveTable, FitsTheTerminal) {
  const auto lines = Lines(LiveTable(ManyResults(300), 76, 12));
  EXPECT_EQ(lines.size(), 12u);
  for (const std::string& line : lines) EXPECT_LE(Columns(line), 76u) << line;
  EXPECT_THAT(lines[0], HasSubstr("the best 10 of 300"));
}

TEST(LiveTable, IsEmptyBeforeThereIsAnything) {
  EXPECT_EQ(LiveTable(FailedResults(), 80, 20), "");
  EXPECT_EQ(LiveTable(PlantedResults(), 80, 2), "");
}

}  // namespace
}  // namespace pinion::harness
