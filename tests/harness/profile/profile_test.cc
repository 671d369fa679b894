#include "harness/profile/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/profile/command.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;
using testing::Not;

Profile Planted() {
  Profile profile;
  profile.objective = "latency";
  profile.configuration.options.model = "org/name";
  profile.configuration.options.threads_bind = "0,2";
  profile.configuration.options.kv_cache_bytes = uint64_t{2} << 30;
  profile.configuration.options.max_num_seqs = 8;
  profile.configuration.runtime.allocator = "tcmalloc";
  profile.configuration.runtime.openmp = "libomp";
  profile.configuration.replicas = 3;
  profile.machine.Set("cpu_model", "Imagined CPU");
  profile.cpus = Json(std::vector<int>{0, 2});
  profile.expected = Json::MakeArray();
  profile.evidence = Json::MakeObject();
  return profile;
}

std::string ErrorOf(const std::string& key, Json value) {
  Json json = ToJson(Planted());
  json.Set(key, std::move(value));
  const auto profile = ParseProfile(json);
  if (profile) return "accepted";
  EXPECT_EQ(ExitCode(profile.error()), 1);
  return profile.error().message;
}

TEST(ProfileJson, ReadsBackAsWritten) {
  const Json json = ToJson(Planted());
  const auto profile = ParseProfile(*Json::Parse(json.Dump()));
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_EQ(ToJson(*profile), json);
  EXPECT_EQ(profile->configuration.options.kv_cache_bytes, uint64_t{2} << 30);
  EXPECT_EQ(profile->configuration.replicas, 3);
}

TEST(ProfileJson, ErrorsNameTheKey) {
  EXPECT_THAT(ErrorOf("format", 99), HasSubstr("format 99"));
  EXPECT_THAT(ErrorOf("format", "1"), HasSubstr("format"));
  EXPECT_THAT(ErrorOf("model", ""), HasSubstr("'model' is empty"));
  EXPECT_THAT(ErrorOf("model", "--host=0.0.0.0"), HasSubstr("reads as a flag"));
  EXPECT_THAT(ErrorOf("model", 7), HasSubstr("model"));
  EXPECT_THAT(ErrorOf("objective", nullptr), HasSubstr("objective"));
  EXPECT_THAT(ErrorOf("configuration", Json::MakeArray()), HasSubstr("'configuration'"));
  EXPECT_THAT(ErrorOf("machine", 1), HasSubstr("'machine'"));
  EXPECT_THAT(ErrorOf("cpus", "0-1"), HasSubstr("'cpus'"));
  EXPECT_THAT(ErrorOf("cpus", Json(std::vector<int>{-1})), HasSubstr("'cpus'"));
  EXPECT_THAT(ErrorOf("alocator", "system"), HasSubstr("'alocator' is not a key"));
}

TEST(ProfileJson, AnAllocatorIsANameNeverAPath) {
  const Json evil = Json::Object{{"allocator", "/tmp/evil.so"}};
  EXPECT_THAT(ErrorOf("configuration", evil), HasSubstr("unknown; use system or tcmalloc"));
}

TEST(ProfileJson, RefusesUnknownAndMistypedSettings) {
  Json configuration = Json::MakeObject();
  configuration.Set("max_num_seqs", "many");
  EXPECT_THAT(ErrorOf("configuration", configuration), HasSubstr("max_num_seqs"));
  for (const auto& [replicas, says] :
       {std::pair(Json(0), "is 0, want 1 to"), std::pair(Json("two"), "must be an integer")}) {
    configuration = Json::Object{{"replicas", replicas}};
    EXPECT_THAT(ErrorOf("configuration", configuration), HasSubstr(says));
  }
  configuration = Json::MakeObject();
  configuration.Set("gpu_memory_utilization", 0.9);
  EXPECT_THAT(ErrorOf("configuration", configuration), HasSubstr("gpu_memory_utilization"));
}

TEST(ReadProfileFile, NamesTheFileInEveryError) {
  const auto path = (std::filesystem::temp_directory_path() / StrCat("pinion-", getpid())).string();
  EXPECT_THAT(ReadProfile(path).error().message, HasSubstr(path));
  for (const std::string& text :
       {std::string("{"), std::string("[]"), std::string("null"), std::string(300, '['),
        std::string("\xff\xfe"), std::string((1 << 20) + 1, ' ')}) {
    ASSERT_TRUE(WriteFile(path, text));
    const auto profile = ReadProfile(path);
    ASSERT_FALSE(profile);
    EXPECT_THAT(profile.error().message, HasSubstr(path));
  }
  std::filesystem::remove(path);
}

TEST(ShellWords, QuoteShellMetacharacters) {
  EXPECT_EQ(ShellQuote("preset:tiny"), "preset:tiny");
  EXPECT_EQ(ShellQuote("0-1|2-3"), "'0-1|2-3'");
  EXPECT_EQ(ShellQuote(""), "''");
  EXPECT_EQ(ShellQuote("a'; rm -rf $HOME"), "'a'\\''; rm -rf $HOME'");
  EXPECT_EQ(ShellQuote("~/model"), "'~/model'");
}

}  // namespace
}  // namespace pinion::harness
