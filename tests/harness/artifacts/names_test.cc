#include "harness/artifacts/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace pinion::harness {
namespace {

using testing::MatchesRegex;
using testing::StartsWith;

std::string NameOf(const std::string& model, const std::string& objective = "throughput",
                   size_t most = kMostOfLabel) {
  Profile profile;
  profile.configuration.options.model = model;
  profile.objective = objective;
  return ObjectName(profile, most);
}

TEST(Slug, IsPartOfADnsLabel) {
  EXPECT_EQ(Slug("Llama-3.2_1B"), "llama-3-2-1b");
  EXPECT_EQ(Slug("--a//b\n"), "a-b");
  EXPECT_EQ(Slug("\xC3\xA9t\xC3\xA9"), "t");
  EXPECT_EQ(Slug("abc-def", 4), "abc");
  EXPECT_EQ(Slug("..."), "");
}

TEST(ObjectName, TellsModelAndObjective) {
  EXPECT_THAT(NameOf("org/Llama-3.2-1B"), StartsWith("pinion-llama-3-2-1b-throughput-"));
  EXPECT_THAT(NameOf("/models/x/"), StartsWith("pinion-x-throughput-"));
  EXPECT_THAT(NameOf("preset:tiny:w8a8"), StartsWith("pinion-tiny-w8a8-throughput-"));
  EXPECT_THAT(NameOf("m", "itl_p95@8"), StartsWith("pinion-m-itl-p95-8-"));
}

TEST(ObjectName, NeverChanges) {
  EXPECT_EQ(NameOf("org/Llama-3.2-1B"), "pinion-llama-3-2-1b-throughput-1e5fbf");
}

TEST(ObjectName, DiffersForEveryModelAndObjective) {
  const std::set<std::string> names = {
      NameOf("a/x"),        NameOf("b/x"),        NameOf("a/X"),
      NameOf("a/x.gguf"),   NameOf("/a/x"),       NameOf("a/x-y", "z"),
      NameOf("a/x", "y-z"), NameOf("a/x", "y_z"), NameOf("a/x", "latency")};
  EXPECT_EQ(names.size(), 9u);
}

TEST(ObjectName, IsADnsLabelForAnyModel) {
  const std::string hostile[] = {"",
                                 "-",
                                 "a: b",
                                 "\"'\n{}",
                                 "\xE6\x97\xA5\xE6\x9C\xAC",
                                 "9/9.",
                                 std::string(500, 'x'),
                                 std::string(500, '-')};
  for (const std::string& model : hostile)
    for (const std::string& objective : {std::string("throughput"), std::string(90, 'o')})
      for (const size_t most : {size_t{40}, kMostOfLabel}) {
        const std::string name = NameOf(model, objective, most);
        EXPECT_THAT(name, MatchesRegex("[a-z]([-a-z0-9]*[a-z0-9])?"));
        EXPECT_LE(name.size(), most);
      }
}

}  // namespace
}  // namespace pinion::harness
