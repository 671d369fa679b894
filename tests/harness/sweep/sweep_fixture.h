#pragma once

// Whole sweeps whose trials are a shell script, which answers like the trial of a configuration,
// well or badly, by the settings that it finds in the request.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/sweep/load.h"
#include "harness/sweep/provenance.h"
#include "harness/sweep/sweep.h"

namespace pinion::harness {

// Of the shell's own commands alone: thousands of trials would start cat and dirname as often.
inline constexpr char kChild[] = R"(#!/bin/sh
IFS= read -r request
speed=100
case "$request" in
  *'"max_num_seqs":11,'*) speed=120 ;;
  *'"max_num_seqs":13,'*) echo 'pinion: unlucky number' >&2; exit 1 ;;
esac
echo trial >> "${0%/*}/trials"
echo '{"samples":[{"metric":"output_tokens_per_s","concurrency":0,"value":'$speed'},
{"metric":"ttft_s","concurrency":1,"value":0.01},{"metric":"tpot_s","concurrency":1,"value":0.01}],
"suspect":[],"info":{"isa":"fake","threads":1}}'
)";

// A sweep's clock, which its trials move: each takes an eighth of a second (sums of it are exact),
// and one that leaves the file "hung" takes forever.
class TrialClock final : public Clock {
 public:
  static constexpr double kTrialSeconds = 0.125;

  explicit TrialClock(std::filesystem::path folder) : folder_(std::move(folder)) {}
  int64_t NowNs() const override {
    constexpr int64_t kForeverNs = 1'000'000'000'000'000;
    const auto trial_ns = static_cast<int64_t>(kTrialSeconds * 1e9);
    return static_cast<int64_t>(TrialsRun()) * trial_ns +
           (std::filesystem::exists(folder_ / "hung") ? kForeverNs : 0);
  }
  void SleepNs(int64_t) const override {}
  // Each that does not fail at once leaves a line.
  size_t TrialsRun() const {
    return Split(ReadFile(folder_ / "trials").value_or(""), '\n').size() - 1;
  }

 private:
  std::filesystem::path folder_;
};

class Quiet : public Progress {
 public:
  void Begin(const ProgressLine&) override { ++begun; }
  void End(const ProgressLine&, bool, const std::string&) override {}
  void Note(const std::string& text) override { notes += text + "\n"; }
  int begun = 0;
  std::string notes;
};

class SweepTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("pinion_sweep_" + std::to_string(getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    request_.binary = folder_ / "child";
    WriteChild(kChild);
    request_.folder = folder_ / "out";
    clock_.emplace(folder_);
    request_.clock = &*clock_;
    Define(R"({"candidates":[{"max_num_seqs":11},{"max_num_seqs":13}],"rounds":6})");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void WriteChild(const char* script) {
    ASSERT_TRUE(WriteFile(request_.binary, script));
    chmod(request_.binary.c_str(), 0755);
  }

  void Define(const char* text) {
    EngineOptions base;
    base.model = "preset:tiny";
    Definition definition;
    ASSERT_TRUE(FromJson(*Json::Parse(text), definition));
    auto host = Host::This();
    ASSERT_TRUE(host) << host.error().message;
    auto meta = DescribeSweep(definition, base, *host, "pinion sweep preset:tiny");
    ASSERT_TRUE(meta) << meta.error().message;
    request_.meta = *meta;
  }

  size_t TrialsRun() const { return clock_->TrialsRun(); }

  Results Load() {
    auto results = LoadResults(request_.folder);
    EXPECT_TRUE(results) << results.error().message;
    return *results;
  }

  std::filesystem::path folder_;
  std::optional<TrialClock> clock_;
  SweepRequest request_;
  Quiet progress_;
};

}  // namespace pinion::harness
