#include "harness/sweep/rescore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace pinion::harness {
namespace {

constexpr int64_t kMs = 1'000'000;

// Sent at `sent_ms`, its tokens so long after it.
RequestRow Request(const char* load, LoadLevel level, int64_t sent_ms,
                   std::vector<int64_t> tokens_ms) {
  RequestRow row;
  row.load = load;
  row.level = level;
  row.record.sent_ns = row.record.scheduled_ns = sent_ms * kMs;
  for (const int64_t after_ms : tokens_ms)
    row.record.token_ns.push_back((sent_ms + after_ms) * kMs);
  row.record.ended_ns = row.record.token_ns.empty() ? 0 : row.record.token_ns.back();
  row.record.status = 200;
  return row;
}

class RescoreTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("pinion_rescore_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    auto store = Store::Create(folder_ / "results.db");
    ASSERT_TRUE(store) << store.error().message;
    store_ = std::move(*store);
    ASSERT_TRUE(store_->PutCandidates({CandidateRow()}));
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }

  // The only trial, judged by a limit on the first token.
  TrialRow Judged(double ttft_s) {
    auto trials = store_->Trials();
    EXPECT_TRUE(trials);
    EXPECT_TRUE(Rescore(*store_, {{.ttft_s = ttft_s, .tpot_s = {}, .e2el_s = {}}}, *trials));
    return trials->front();
  }

  std::filesystem::path folder_;
  std::unique_ptr<Store> store_;
};

double Goodput(const TrialRow& trial, LoadLevel level) {
  for (const MetricValue& sample : trial.samples)
    if (sample.metric == "goodput" && sample.level == level) return sample.value;
  return -1;
}

TEST_F(RescoreTest, CountsGoodputOfEveryLoopAgain) {
  TrialRow trial;
  trial.ok = true;
  trial.samples = {{"goodput", 2, 99}};
  trial.requests = {Request("batch", 0, 0, {5, 6}),
                    Request("clients", 2, 0, {100, 500}),
                    Request("clients", 2, 0, {300, 1000}),
                    Request("clients", 4, 0, {10, 500}),
                    Request("rate", LoadLevel::AtRate(3), 0, {20, 500}),
                    Request("rate", LoadLevel::AtRate(3), 20, {20, 30})};
  trial.requests.back().record.scheduled_ns = 0;
  ASSERT_TRUE(store_->PutTrial(trial, {"m", "m", "{}", 1}));
  EXPECT_DOUBLE_EQ(Goodput(Judged(0.21), 2), 1);  // one of two, in a window of a second
  EXPECT_DOUBLE_EQ(Goodput(Judged(0.31), 2), 2);
  EXPECT_DOUBLE_EQ(Goodput(Judged(0.05), 2), 0);
  EXPECT_DOUBLE_EQ(Goodput(Judged(0.05), 4), 2);
  EXPECT_EQ(Goodput(Judged(0.05), 0), -1) << "the batch has none";
  EXPECT_DOUBLE_EQ(Goodput(Judged(0.05), LoadLevel::AtRate(3)), 4) << "two in half a second";
  EXPECT_DOUBLE_EQ(Goodput(Judged(0.03), LoadLevel::AtRate(3)), 2) << "from when it was due";
}

// A loop too short for a steady window, of which one request was cut off, lasts until then.
TEST_F(RescoreTest, ALoopLastsUntilItsLastRequestWasCutOff) {
  constexpr int64_t kUpMs = 1'000'000;  // since the machine's start
  TrialRow trial;
  trial.ok = true;
  trial.requests = {Request("clients", 2, kUpMs, {100, 500}), Request("clients", 2, kUpMs, {})};
  RequestRecord& cut = trial.requests[1].record;
  cut.cut = true;
  cut.error = "cut off";
  cut.ended_ns = (kUpMs + 2000) * kMs;
  ASSERT_TRUE(store_->PutTrial(trial, {"m", "m", "{}", 1}));
  EXPECT_DOUBLE_EQ(Goodput(Judged(0.21), 2), 0.5) << "one in two seconds";
}

TEST_F(RescoreTest, CountsTheSearchsLevelsAgain) {
  TrialRow trial;
  trial.ok = true;
  trial.info.slo = {"requests/s", {}};
  RequestRow late = Request("search", 0, 1000, {100, 200});
  late.record.scheduled_ns -= 500 * kMs;  // it waited for a place before it was sent
  trial.requests = {Request("search", 0, 0, {100, 200}), late};
  for (RequestRow& row : trial.requests) row.level = LoadLevel::AtRate(2);
  trial.samples = {{"slo_load", 0, 99}};
  ASSERT_TRUE(store_->PutTrial(trial, {"m", "m", "{}", 1}));
  const auto level = [](const TrialRow& judged) {
    const LevelRun one = judged.info.slo->levels.at(2);
    return std::pair(one.good, one.total);
  };
  EXPECT_EQ(level(Judged(0.21)), std::pair(size_t{1}, size_t{2})) << "counted from when it was due";
  EXPECT_EQ(level(Judged(0.7)), std::pair(size_t{2}, size_t{2}));
}

// Of 2 and 4 requests/s, both are good within 0.7 s, one within 0.21 s and none within 0.05 s.
// Between the waves of a trial in turns the other side was loaded: ten seconds that are nobody's.
TEST_F(RescoreTest, JudgesTheWavesOfATrialInTurnsByThemselves) {
  TrialRow trial;
  trial.ok = true;
  for (const int64_t start_ms : {0, 11'000}) {
    trial.requests.push_back(Request("clients", 2, start_ms, {100, 500}));
    trial.requests.push_back(Request("clients", 2, start_ms, {300, 1000}));
    trial.requests.push_back(Request("search", LoadLevel::AtRate(2), start_ms, {100, 200}));
    trial.requests.push_back(Request("search", LoadLevel::AtRate(4), start_ms, {500, 600}));
  }
  trial.info.slo = {"requests/s", {}};
  trial.info.waves = {{{"goodput", 2, 99}, {"slo_load", 0, 99}}, {{"goodput", 2, 99}}};
  trial.samples = {{"goodput", 2, 99}, {"slo_load", 0, 99}, {"start_s", 0, 3}};
  trial.info.wave_requests = {4, 4};
  ASSERT_TRUE(store_->PutTrial(trial, {"m", "m", "{}", 1}));
  const TrialRow judged = Judged(0.31);
  EXPECT_DOUBLE_EQ(Goodput(judged, 2), 2) << "two in each second";
  EXPECT_EQ(judged.samples.size(), 3u);
  EXPECT_EQ(judged.info.slo->levels.at(4).total, 2u) << "of both searches";
  for (const auto& wave : judged.info.waves) {  // the verdict on a pair is made of these
    TrialRow one;
    one.samples = wave;
    EXPECT_DOUBLE_EQ(Goodput(one, 2), 2);
    ASSERT_EQ(wave.size(), 2u);
    EXPECT_GT(wave.back().value, 2);
    EXPECT_LT(wave.back().value, 4);
  }
}

TEST_F(RescoreTest, TellsALoadOnlyIfTheLevelsStillEncloseIt) {
  TrialRow trial;
  trial.ok = true;
  trial.info.slo = {"requests/s", {}};
  trial.info.cut = {"loop of 1 client cut"};
  trial.requests = {Request("search", LoadLevel::AtRate(2), 0, {100, 200}),
                    Request("search", LoadLevel::AtRate(4), 0, {500, 600})};
  trial.samples = {{"slo_load", 0, 99}};
  ASSERT_TRUE(store_->PutTrial(trial, {"m", "m", "{}", 1}));
  const TrialRow enclosed = Judged(0.21);
  ASSERT_EQ(enclosed.samples.size(), 1u);
  EXPECT_EQ(enclosed.samples.back().metric, "slo_load");
  EXPECT_GT(enclosed.samples.back().value, 2);
  EXPECT_LT(enclosed.samples.back().value, 4);
  EXPECT_THAT(enclosed.info.cut, testing::ElementsAre("loop of 1 client cut"));
  for (const double none : {0.7, 0.05}) {
    const TrialRow open = Judged(none);
    EXPECT_TRUE(open.samples.empty()) << none;
    EXPECT_THAT(open.info.cut,
                testing::ElementsAre("loop of 1 client cut", "search of the SLO's load cut"));
  }
}

TEST_F(RescoreTest, LeavesOutALevelThatWasCutOffBeforeTheLimitsDecide) {
  TrialRow trial;
  trial.ok = true;
  trial.info.slo = {"requests/s", {}};
  trial.requests = {Request("search", 0, 0, {100, 200}), Request("search", 0, 0, {})};
  for (RequestRow& row : trial.requests) row.level = LoadLevel::AtRate(2);
  trial.requests[1].record.cut = true;
  trial.requests[1].record.error = "cut off";
  trial.requests[1].record.ended_ns = 500 * kMs;
  ASSERT_TRUE(store_->PutTrial(trial, {"m", "m", "{}", 1}));
  const auto levels = [](const TrialRow& judged) { return judged.info.slo->levels.size(); };
  EXPECT_EQ(levels(Judged(0.4)), 1u) << "it had waited longer than that";
  EXPECT_EQ(levels(Judged(0.6)), 0u);
  EXPECT_TRUE(Judged(0.6).samples.empty());
}

}  // namespace
}  // namespace pinion::harness
