#include "engine/run/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/base/file.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

const SettingRow& Row(const char* key) {
  const SettingRow* row = FindSetting(key);
  EXPECT_NE(row, nullptr) << key;
  return *row;
}

// A value that is allowed and differs from the default.
Json Another(const SettingRow& row) {
  const Json now = row.get({});
  if (row.kind == SettingKind::kSwitch) return !now.boolean();
  if (row.kind == SettingKind::kGib) return 0.5;
  if (row.kind == SettingKind::kText) return row.names.empty() ? Json("0") : Json(row.names.back());
  const int64_t base = now.is_null() ? row.least : now.integer();
  return base + row.multiple;
}

TEST(Settings, KeysFlagsAndVariablesAreUnique) {
  std::set<std::string> keys, flags, variables;
  for (const SettingRow& row : SettingRows()) {
    EXPECT_TRUE(keys.insert(row.key).second) << row.key;
    EXPECT_TRUE(!*row.flag || flags.insert(row.flag).second) << row.flag;
    EXPECT_TRUE(!*row.environment || variables.insert(row.environment).second) << row.environment;
  }
}

TEST(Settings, ARowWritesNothingButItsOwnField) {
  for (const SettingRow& row : SettingRows()) {
    Configuration changed;
    row.set(Another(row), changed);
    for (const SettingRow& other : SettingRows())
      EXPECT_EQ(other.get(changed) == other.get({}), other.key != row.key)
          << row.key << " and " << other.key;
    EXPECT_EQ(row.get(changed), Another(row)) << row.key;
  }
}

TEST(Settings, TextAndJsonGiveTheSameValue) {
  for (const SettingRow& row : SettingRows()) {
    const Json value = Another(row);
    EXPECT_EQ(ParseSetting(row, SettingText(value), row.key), value) << row.key;
    EXPECT_EQ(ReadSetting(row, value, row.key), value) << row.key;
    EXPECT_TRUE(CheckSetting(row, value, row.key)) << row.key;
    EXPECT_EQ(bool(ReadSetting(row, Json(), row.key)), row.can_be_unset) << row.key;
    EXPECT_FALSE(ReadSetting(row, Json::MakeArray(), row.key)) << row.key;
  }
}

TEST(Settings, GibAreShownAsTheyWereWritten) {
  const SettingRow& row = Row("kv_cache_space");
  for (const double written : {0.02, 0.3, 1.0, 2.5, 0.03125, 123.456}) {
    Configuration configuration;
    row.set(*ReadSetting(row, written, ""), configuration);
    EXPECT_EQ(row.get(configuration).number(), written);
  }
  // Any number of bytes is shown as that number.
  for (uint64_t bytes = 1; bytes < uint64_t{1} << 40; bytes = bytes * 7 + 3)
    EXPECT_EQ(static_cast<uint64_t>(GibOf(bytes) * 1073741824.0), bytes);
}

TEST(Settings, DefaultsAreAllowed) {
  for (const SettingRow& row : SettingRows())
    EXPECT_TRUE(CheckSetting(row, row.get({}), row.key)) << row.key;
}

TEST(Settings, ErrorsNameTheValueAndTheAllowedOnes) {
  const auto error = [](const char* key, const Json& value) {
    const Status status = CheckSetting(Row(key), value, Row(key).name());
    return status ? std::string("allowed") : status.error().message;
  };
  EXPECT_EQ(error("smt", "maybe"), "--smt 'maybe' is unknown; use off or on");
  EXPECT_EQ(error("max_num_seqs", 0), "--max-num-seqs is 0, want 1 or more");
  EXPECT_EQ(error("block_size", 40), "--block-size is 40, want a multiple of 16, 16 to 1024");
  EXPECT_EQ(error("replicas", 257), "--data-parallel-size is 257, want 1 to 256");
  EXPECT_EQ(error("kv_cache_space", 0.0),
            "--kv-cache-space is 0; leave it out for the default: from free memory");
  const auto mistyped = ReadSetting(Row("max_num_seqs"), "4", "'max_num_seqs'");
  EXPECT_EQ(mistyped.error().message, "'max_num_seqs' must be an integer, not \"4\"");
}

TEST(Settings, ASeedUsesAll64Bits) {
  const auto seed = ParseSetting(Row("seed"), "18446744073709551615", "--seed");
  ASSERT_TRUE(seed);
  Configuration changed;
  Row("seed").set(*seed, changed);
  EXPECT_EQ(changed.options.seed, ~uint64_t{0});
  for (const char* bad : {"-1", "", "18446744073709551616", "1x"})
    EXPECT_FALSE(ParseSetting(Row("seed"), bad, "--seed")) << bad;
}

TEST(Settings, HelpNamesTheValuesTheDefaultAndTheVariable) {
  EXPECT_EQ(SettingHelp(Row("head_dtype")),
            "auto or int8: the output layer as stored, or rounded at loading (default: auto)");
  EXPECT_THAT(SettingHelp(Row("kv_cache_space")), HasSubstr("[VLLM_CPU_KVCACHE_SPACE]"));
}

TEST(Settings, ACounterpartTranslatesValuesOrHasNone) {
  const Counterpart& vllm = Row("kv_cache_dtype").vllm;
  EXPECT_EQ(CounterpartValue(vllm, "fp8_e5m2"), "fp8_e5m2");
  EXPECT_EQ(CounterpartValue(vllm, "int8"), std::nullopt);
  EXPECT_EQ(CounterpartValue(Row("kv_cache_dtype").llama_cpp, "fp16"), "f16");
  EXPECT_EQ(CounterpartValue(Row("isa").vllm, "avx2"), std::nullopt);
  EXPECT_EQ(CounterpartValue(Row("max_num_seqs").vllm, 8), "8");
}

TEST(Settings, SchemasAndDocumentationAgreeWithTheRegistry) {
  const auto folder = tests::SourceFolder();
  const char* hint = "run scripts/registries";
  const Json sweep = *Json::ParseFile(folder / "profiles/sweep.schema.json");
  const Json profile = *Json::ParseFile(folder / "profiles/profile.schema.json");
  EXPECT_EQ(*sweep.Find("$defs")->Find("settings"), SettingsSchema()) << hint;
  EXPECT_EQ(*sweep.Find("$defs")->Find("axes"), AxesSchema()) << hint;
  EXPECT_EQ(*profile.Find("$defs")->Find("settings"), SettingsSchema()) << hint;
  EXPECT_THAT(ReadFile(folder / "docs/settings.md").value(), HasSubstr(SettingsTable())) << hint;
}

}  // namespace
}  // namespace pinion
