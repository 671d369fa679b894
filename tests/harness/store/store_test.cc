#include "harness/store/store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "engine/base/file.h"

namespace pinion::harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("pinion_store_" + std::to_string(getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    path_ = folder_ / "results.db";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Store> Open() {
    auto store = Store::Open(path_);
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(*store) : nullptr;
  }

  std::unique_ptr<Store> Create() {
    auto store = Store::Create(path_);
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(*store) : nullptr;
  }

  std::filesystem::path folder_;
  std::string path_;
};

CandidateRow Candidate(int id) {
  CandidateRow row;
  row.id = id;
  row.label = id ? "isa=avx2" : "default";
  if (id) row.settings = {{"isa", "avx2"}};
  row.configuration = ConfigurationOf(row.settings);
  row.is_baseline = id == 0;
  row.cores = 2;
  row.same_as = {"threads_bind=0,1"};
  return row;
}

TrialRow Trial(int candidate, int round, double value) {
  TrialRow row;
  row.candidate = candidate;
  row.round = round;
  row.ok = true;
  row.suspect = {"steal 4.1 %"};
  row.info.isa = "avx2";
  row.samples = {{"ttft_s", 1, value},
                 {"ttft_s", 8, 2 * value},
                 {"ttft_s", LoadLevel::AtRate(0.1), value},
                 {"load_s", 0, 0.5}};
  return row;
}

const Store::Keys kKeys = {"machine", "preset:tiny", "{}", 7};

RequestRow Request(int conversation) {
  RequestRow row;
  row.load = "clients";
  row.level = 3;
  RequestRecord& one = row.record;
  one.conversation = static_cast<size_t>(conversation);
  one.turn = 1;
  one.scheduled_ns = 7'000'000'123;
  one.sent_ns = 7'000'100'123;
  one.token_ns = {7'000'350'123, 7'000'350'123, 9'000'351'123};
  one.ended_ns = 9'000'400'000;
  one.output_len = 3;
  one.prompt_tokens = 17;
  one.cached_tokens = 0;  // output_tokens: the server did not count them
  one.status = 200;
  return row;
}

TEST_F(StoreTest, KeepsEveryRequestOfATrial) {
  const auto store = Create();
  ASSERT_TRUE(store->PutCandidates({Candidate(0), Candidate(1)}));
  RequestRow cut = Request(1);
  cut.load = "search";
  cut.level = LoadLevel::AtRate(0.25);
  cut.record.token_ns.clear();
  cut.record.error = "cut off";
  cut.record.cut = true;
  TrialRow one = Trial(0, 1, 0.1), other = Trial(1, 1, 0.2);
  one.requests = {Request(0), cut};
  other.requests = {Request(5)};
  ASSERT_TRUE(store->PutTrial(one, kKeys));
  ASSERT_TRUE(store->PutTrial(other, kKeys));
  EXPECT_THAT(*store->Requests(one), ElementsAre(Request(0), cut));
  EXPECT_THAT(*store->Requests(other), ElementsAre(Request(5)));
  EXPECT_TRUE(store->Trials()->front().requests.empty()) << "they may be many";
  one.requests = {Request(8)};
  ASSERT_TRUE(store->PutTrial(one, kKeys));  // replaces the first
  EXPECT_THAT(*store->Requests(one), ElementsAre(Request(8)));
  EXPECT_TRUE(store->Requests(Trial(1, 2, 0))->empty()) << "not stored";
}

// The figure of docs/verdicts.md: answers of 64 tokens, one every 25 ms, after days of uptime.
TEST_F(StoreTest, AMillionTokensTakeFourToFiveMegabytes) {
  constexpr int kRequests = 2000, kTokens = 64;
  constexpr int64_t kMs = 1'000'000, kUpNs = 1'000'000'000'000'000;
  ASSERT_TRUE(Create()->PutCandidates({Candidate(0)}));
  const auto empty = std::filesystem::file_size(path_);
  TrialRow trial = Trial(0, 1, 0.1);
  for (int i = 0; i < kRequests; ++i) {
    RequestRow row = Request(i);
    RequestRecord& one = row.record;
    one.scheduled_ns = one.sent_ns = kUpNs + i * 100 * kMs;
    one.token_ns.clear();
    for (int token = 0; token < kTokens; ++token)
      one.token_ns.push_back(one.sent_ns + (300 + 25 * token) * kMs);
    one.ended_ns = one.token_ns.back();
    one.output_len = kTokens;
    one.output_tokens = kTokens;
    trial.requests.push_back(std::move(row));
  }
  ASSERT_TRUE(Open()->PutTrial(trial, kKeys));
  const auto bytes = static_cast<double>(std::filesystem::file_size(path_) - empty);
  const double each = bytes / (kRequests * kTokens);
  EXPECT_GT(each, 4);
  EXPECT_LT(each, 5);
}

TEST_F(StoreTest, ReadsBackEveryRowStored) {
  {
    const auto store = Create();
    ASSERT_TRUE(store->SetMeta("model", "preset:tiny"));
    ASSERT_TRUE(store->PutCandidates({Candidate(0), Candidate(1)}));
    ASSERT_TRUE(store->PutTrial(Trial(1, 1, 0.25), kKeys));
    ASSERT_TRUE(store->PutTrial(Trial(0, 1, 0.5), kKeys));
  }
  const auto store = Open();
  EXPECT_EQ((*store->Meta("model"))->string(), "preset:tiny");
  EXPECT_FALSE(store->Meta("nothing")->has_value());
  const auto candidates = *store->Candidates();
  ASSERT_EQ(candidates.size(), 2u);
  EXPECT_TRUE(candidates[0].is_baseline);
  EXPECT_THAT(candidates[1].same_as, ElementsAre("threads_bind=0,1"));
  const auto trials = *store->Trials();
  ASSERT_EQ(trials.size(), 2u);
  EXPECT_EQ(trials[0].candidate, 1);
  EXPECT_THAT(trials[0].suspect, ElementsAre("steal 4.1 %"));
  EXPECT_EQ(trials[0].info.isa, "avx2");
  ASSERT_EQ(trials[0].samples.size(), 4u);
  EXPECT_EQ(trials[0].samples[2].level, LoadLevel::AtRate(0.1));
  EXPECT_EQ(trials[1].samples.size(), 4u);
  for (const MetricValue& sample : trials[0].samples)
    if (sample.metric == "ttft_s") {
      EXPECT_EQ(sample.value, sample.level == LoadLevel(8) ? 0.5 : 0.25);
    }
}

TEST_F(StoreTest, AnotherTryReplacesTheFirstWithItsSamples) {
  const auto store = Create();
  ASSERT_TRUE(store->PutCandidates({Candidate(0)}));
  ASSERT_TRUE(store->PutTrial(Trial(0, 1, 0.25), kKeys));
  ASSERT_TRUE(store->PutTrial(Trial(0, 1, 0.75), kKeys));
  const auto trials = *store->Trials();
  ASSERT_EQ(trials.size(), 1u);
  EXPECT_EQ(trials[0].samples.size(), 4u);
}

TEST_F(StoreTest, ATrialWithoutItsCandidateLeavesNothing) {
  const auto store = Create();
  EXPECT_FALSE(store->PutTrial(Trial(5, 1, 0.25), kKeys));
  EXPECT_TRUE(store->Trials()->empty());
  ASSERT_TRUE(store->PutCandidates({Candidate(5)}));  // the failed transaction is over
}

TEST_F(StoreTest, ANewOneIsThereWithAllOfItsRowsOrNotAtAll) {
  const pid_t child = fork();
  if (child == 0) {
    (void)Store::Create(path_, [](Store& store) {
      (void)store.PutCandidates({Candidate(0)});
      raise(SIGKILL);
      return Status();
    });
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(std::filesystem::exists(path_));
  const auto failed = Store::Create(
      path_, [](Store&) -> Status { return Fail(ErrorCode::kFailed, "no such machine"); });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "no such machine");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  const auto made =
      Store::Create(path_, [](Store& store) { return store.PutCandidates({Candidate(0)}); });
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(Open()->Candidates()->size(), 1u);
}

TEST_F(StoreTest, AFinishedTrialSurvivesKill) {
  const pid_t child = fork();
  if (child == 0) {
    auto store = Store::Create(path_);
    if (!store || !(*store)->PutCandidates({Candidate(0)}) ||
        !(*store)->PutTrial(Trial(0, 1, 0.25), kKeys))
      _exit(1);
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(Open()->Trials()->size(), 1u);
}

TEST_F(StoreTest, ReadsWhileAnotherWrites) {
  const auto writer = Create();
  ASSERT_TRUE(writer->PutCandidates({Candidate(0)}));
  const auto reader = Open();
  EXPECT_TRUE(reader->Trials()->empty());
  ASSERT_TRUE(writer->PutTrial(Trial(0, 1, 0.25), kKeys));
  EXPECT_EQ(reader->Trials()->size(), 1u);
}

TEST_F(StoreTest, RefusesToCreateOverASweep) {
  Create();
  const auto again = Store::Create(path_);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kUsage);
  EXPECT_THAT(again.error().message, HasSubstr("--resume"));
}

TEST_F(StoreTest, NamesAMissingFileAndACorruptOne) {
  const auto missing = Store::Open(path_);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(WriteFile(path_, std::string(5000, 'x')));
  const auto corrupt = Store::Open(path_);
  ASSERT_FALSE(corrupt);
  EXPECT_EQ(corrupt.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(corrupt.error().message, HasSubstr(path_));
}

TEST_F(StoreTest, ADamagedStoreIsAnErrorThatNamesTheMissingPart) {
  ASSERT_TRUE(Create()->PutCandidates({Candidate(0), Candidate(1)}));
  const auto lacks = [&](const char* statement) {
    SQLite::Database(path_, SQLite::OPEN_READWRITE).exec(statement);
    const auto found = Open()->Candidates();
    EXPECT_FALSE(found) << statement;
    return found ? "" : found.error().message;
  };
  EXPECT_THAT(lacks("UPDATE candidate SET options='[1]' WHERE id=1"),
              HasSubstr(path_ + " is damaged, it lacks candidate 1 or a part of it"));
  EXPECT_THAT(lacks("UPDATE candidate SET options='{}', settings='[[1,2]]'"),
              HasSubstr("lacks candidate 0"));
  EXPECT_THAT(lacks("UPDATE candidate SET settings='[]'; DELETE FROM candidate WHERE id=0"),
              HasSubstr("lacks candidate 0"));
  EXPECT_THAT(lacks("DELETE FROM candidate"), HasSubstr("lacks the baseline"));
}

TEST_F(StoreTest, AnAnswerWithoutTokensIsAnError) {
  const auto store = Create();
  ASSERT_TRUE(store->PutCandidates({Candidate(0)}));
  TrialRow trial;
  trial.ok = true;
  trial.requests.resize(1);
  ASSERT_TRUE(store->PutTrial(trial, {"m", "m", "{}", 1}));
  const auto requests = store->Requests(trial);
  ASSERT_FALSE(requests);
  EXPECT_THAT(requests.error().message, HasSubstr("no times of tokens"));
}

TEST_F(StoreTest, AnotherVersionsTablesAreRefusedByBothNumbers) {
  Create();
  SQLite::Database database(path_, SQLite::OPEN_READWRITE);
  const int own = database.execAndGet("PRAGMA user_version").getInt();
  for (const int other : {own - 1, own + 1}) {
    database.exec("PRAGMA user_version=" + std::to_string(other));
    const auto store = Store::Open(path_);
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(store.error().message, HasSubstr("has layout " + std::to_string(other)));
    EXPECT_THAT(store.error().message, HasSubstr("reads layout " + std::to_string(own)));
  }
}

// Wherever the disk becomes full, while rows are written or when they are moved into the file.
TEST_F(StoreTest, ANewFileHasAllItsRowsOrIsNotThere) {
  constexpr int kRows = 40;
  const auto fill = [](Store& store) -> Status {
    PINION_TRY(store.PutCandidates({Candidate(0)}));
    for (int round = 0; round < kRows; ++round)
      PINION_TRY(store.PutTrial(Trial(0, round, 1), kKeys));
    return {};
  };
  bool whole = false;
  int refused = 0;
  for (rlim_t most = 4096; !whole && most <= rlim_t{16} << 20; most += 4096) {
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit limit = {most, most};
      setrlimit(RLIMIT_FSIZE, &limit);
      _exit(Store::Create(path_, fill) ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << most;
    whole = WEXITSTATUS(status) == 0;
    refused += !whole;
    ASSERT_EQ(std::filesystem::exists(path_), whole) << most;
    if (whole) EXPECT_EQ(Open()->Trials()->size(), size_t{kRows}) << most;
  }
  EXPECT_TRUE(whole);
  EXPECT_GT(refused, 1);
}

TEST_F(StoreTest, ANewFileTakesNothingFromOneThatIsGone) {
  {
    const auto old = Create();
    ASSERT_TRUE(old->PutCandidates({Candidate(0)}));
    std::filesystem::copy_file(path_ + "-wal", path_ + ".kept");
  }
  std::filesystem::remove(path_);
  std::filesystem::rename(path_ + ".kept", path_ + "-wal");
  EXPECT_THAT(Create()->Candidates().error().message, HasSubstr("lacks the baseline"));
}

TEST_F(StoreTest, AFileThatCannotGrowIsAnErrorAndKeepsItsRows) {
  const auto store = Create();
  ASSERT_TRUE(store->PutCandidates({Candidate(0)}));
  ASSERT_TRUE(store->PutTrial(Trial(0, 1, 0.25), kKeys));
  const pid_t child = fork();  // a limit on file sizes stands for a full disk
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {16'384, 16'384};
    setrlimit(RLIMIT_FSIZE, &limit);
    auto own = Store::Open(path_);
    if (!own) _exit(0);
    for (int round = 2; round < 2000; ++round)
      if (auto put = (*own)->PutTrial(Trial(0, round, 1), kKeys); !put)
        _exit(put.error().message.find("results.db") != std::string::npos ? 0 : 2);
    _exit(3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_GE(store->Trials()->size(), 1u);
}

}  // namespace
}  // namespace pinion::harness
