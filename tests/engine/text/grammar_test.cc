// Grammars through the helper process: masks in shared memory, and what a client's grammar may
// cost.

#include "engine/text/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

using testing::HasSubstr;

constexpr int64_t kLongNs = 60'000'000'000;

GrammarVocabulary Vocabulary() {
  return {tests::TestData() + "/models/tiny-trained/tokenizer.json", {}, 1024, {2}};
}

class GrammarTest : public testing::Test {
 protected:
  void SetUp() override {
    if (auto can = CanFollowGrammars(Vocabulary()); !can) GTEST_SKIP() << can.error().message;
  }
};

Json Step(const char* what, const char* value) {
  Json request = Json::MakeObject();
  request.Set(what, *Json::Parse(value));
  return request;
}

TEST_F(GrammarTest, MasksAreWrittenToTheSharedRows) {
  const size_t words = MaskWords(1024);
  const int fd = memfd_create("rows", 0);
  ASSERT_EQ(ftruncate(fd, static_cast<off_t>(2 * words * 4)), 0);
  auto* rows = static_cast<uint32_t*>(mmap(nullptr, 2 * words * 4, PROT_READ, MAP_SHARED, fd, 0));
  auto helper = GrammarHelper::Start(Vocabulary(), {fd, 2});
  ASSERT_TRUE(helper) << helper.error().message;
  (*helper)->Send(Step("begin", R"([[1, "choice", "[\"a\"]"]])"));
  auto ready = (*helper)->Receive(NowNs() + kLongNs);
  ASSERT_TRUE(ready && *ready) << (ready ? "late" : ready.error().message);
  EXPECT_EQ((*ready)->Find("row_bytes")->integer(), static_cast<int64_t>(words * 4));
  auto begun = (*helper)->Receive(NowNs() + kLongNs);
  ASSERT_TRUE(begun && *begun);
  EXPECT_EQ((*begun)->Find("failed")->Dump(), "{}");
  const Json* forced = (*begun)->Find("forced")->Find("1");
  ASSERT_TRUE(forced && forced->array().size() == 2) << "'a' and the end";
  const auto first = static_cast<size_t>(forced->array()[0].integer());
  EXPECT_EQ(rows[words + first / 32], 1u << (first % 32));
  size_t allowed = 0;
  for (size_t i = 0; i < words; ++i) {
    EXPECT_EQ(rows[i], 0u) << "another row";
    allowed += static_cast<size_t>(__builtin_popcount(rows[words + i]));
  }
  EXPECT_EQ(allowed, 1u);
  munmap(rows, 2 * words * 4);
  close(fd);
}

TEST_F(GrammarTest, ReceiveDoesNotWaitBeyondItsDeadline) {
  auto helper = GrammarHelper::Start(Vocabulary(), {});
  ASSERT_TRUE(helper);
  ASSERT_TRUE(*(*helper)->Receive(NowNs() + kLongNs));
  auto nothing = (*helper)->Receive(0);  // nothing was asked
  ASSERT_TRUE(nothing);
  EXPECT_FALSE(*nothing);
}

TEST_F(GrammarTest, AHelperThatIsGoneIsAnError) {
  GrammarVocabulary missing = Vocabulary();
  missing.file = "/nowhere/tokenizer.json";
  auto helper = GrammarHelper::Start(missing, {});
  ASSERT_TRUE(helper);
  auto answer = (*helper)->Receive(NowNs() + kLongNs);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kIo);
}

TEST_F(GrammarTest, ACheckTellsGoodFromBad) {
  GrammarChecker checker(Vocabulary());
  EXPECT_TRUE(checker.Check({"json", R"({"type":"object"})"}));
  const auto bad = checker.Check({"regex", "("});
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, ErrorCode::kUsage);
  EXPECT_THAT(bad.error().message, HasSubstr("the regex is not supported"));
  EXPECT_TRUE(checker.Check({"choice", R"(["a","b"])"})) << "a bad one spoils no later one";
}

}  // namespace
}  // namespace pinion
