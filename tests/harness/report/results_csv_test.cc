#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "engine/base/strings.h"
#include "harness/report/export.h"
#include "planted.h"

namespace pinion::harness {
namespace {

Candidate Measured() {
  Candidate candidate;
  candidate.id = 3;
  candidate.label = "isa=avx2";
  candidate.status = CandidateStatus::kOk;
  EngineOptions& options = candidate.configuration.options;
  options.threads_bind = "0-1";
  options.reserved_cpus = 1;
  options.tensor_parallel = 2;
  options.isa = "avx2";
  options.dtype = "bfloat16";
  options.max_num_batched_tokens = 512;
  options.max_num_seqs = 64;
  candidate.threads = 7;
  return candidate;
}

std::string CsvOf(Candidate candidate) {
  Results results;
  results.candidates.push_back(std::move(candidate));
  return ResultsCsv(results);
}

// The text's rows by column.
std::vector<std::map<std::string, std::string>> RowsOf(const std::string& csv) {
  std::vector<std::map<std::string, std::string>> rows;
  std::vector<std::string> lines = Split(csv, '\n');
  EXPECT_EQ(lines.back(), "");
  lines.pop_back();
  const std::vector<std::string> names = Split(lines.front(), ',');
  for (size_t row = 1; row < lines.size(); ++row) {
    const std::vector<std::string> fields = Split(lines[row], ',');
    EXPECT_EQ(fields.size(), names.size());
    for (size_t i = 0; i < std::min(fields.size(), names.size()); ++i)
      (i == 0 ? rows.emplace_back() : rows.back())[names[i]] = fields[i];
  }
  return rows;
}

TEST(ResultsCsvText, HasEveryFieldUnderItsName) {
  Candidate candidate = Measured();
  candidate.configuration.replicas = 3;
  candidate.configuration.runtime.allocator = "tcmalloc";
  candidate.series.push_back({"ttft_s", 4, {}, {6, 0.25, 0.01, Interval{0.125, 0.5, 0.96875}}});
  candidate.series.push_back({"output_tokens_per_s", 0, {}, {5, 1234.56789, 3, std::nullopt}});
  auto rows = RowsOf(CsvOf(candidate));
  ASSERT_EQ(rows.size(), 2u);
  for (auto& row : rows)
    for (const auto& [name, value] : std::map<std::string, std::string>{{"candidate", "3"},
                                                                        {"label", "isa=avx2"},
                                                                        {"status", "ok"},
                                                                        {"reason", ""},
                                                                        {"threads_bind", "0-1"},
                                                                        {"reserved_cpus", "1"},
                                                                        {"kv_cache_space", ""},
                                                                        {"tensor_parallel", "2"},
                                                                        {"isa", "avx2"},
                                                                        {"max_num_seqs", "64"},
                                                                        {"replicas", "3"},
                                                                        {"allocator", "tcmalloc"},
                                                                        {"threads", "7"}})
      EXPECT_EQ(row.at(name), value) << name;
  for (const SettingRow& setting : SettingRows()) EXPECT_TRUE(rows[0].contains(setting.key));
  EXPECT_EQ(
      rows[0].at("metric") + rows[0].at("rate") + rows[0].at("unit") + rows[0].at("concurrency"),
      "ttft_ss4");
  EXPECT_EQ(rows[0].at("low") + " " + rows[0].at("high") + " " + rows[0].at("coverage"),
            "0.125 0.5 0.96875");
  EXPECT_EQ(rows[0].at("front\r"), "\r") << "lines end as RFC 4180 says";
  EXPECT_EQ(
      rows[1].at("n") + " " + rows[1].at("median") + rows[1].at("low") + rows[1].at("coverage"),
      "5 1234.56789");
}

TEST(ResultsCsvText, PointsSayWhetherTheyAreOnTheParetoFront) {
  Results results = PlantedResults();
  results.candidates.resize(3);  // that were measured
  std::map<std::string, int> places;
  for (const auto& row : RowsOf(ResultsCsv(results)))
    if (const std::string place = row.at("front\r"); place != "\r") {
      EXPECT_TRUE(row.at("metric") == "e2el_s" || row.at("metric") == "output_tokens_per_s");
      EXPECT_EQ(place, row.at("candidate") == "1" ? "on\r" : "off\r");
      ++places[place];
    }
  EXPECT_EQ(places, (std::map<std::string, int>{{"on\r", 4}, {"off\r", 8}}));
}

TEST(ResultsCsvText, ACandidateWithoutMeasurementsHasAllColumns) {
  const auto rows = RowsOf(CsvOf(Measured()));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].at("metric"), "");
  EXPECT_EQ(rows[0].at("threads"), "7");
}

}  // namespace
}  // namespace pinion::harness
