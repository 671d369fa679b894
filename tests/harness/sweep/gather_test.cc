// Sweeps of several nodes, joined. A node's trials are a script's, whose speed it multiplies.

#include "harness/sweep/gather.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "sweep_fixture.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;

class GatherTest : public SweepTest {
 protected:
  // Sweeps into a folder of that name on a node that is `factor` times as fast. `first`: of the
  // trial's shell script, before it answers.
  std::string Node(const std::string& name, int factor, const std::string& first = "") {
    std::string script = kChild;
    script.insert(script.find("speed=100"), first);
    for (const char* speed : {"speed=100", "speed=120"}) {
      const std::string text = speed;
      const size_t at = script.find(text);
      script.replace(at, text.size(), StrCat("speed=$((", text.substr(6), " * ", factor, "))"));
    }
    WriteChild(script.c_str());
    request_.folder = folder_ / name;
    const auto end = RunSweep(request_, progress_);
    EXPECT_TRUE(end) << end.error().message;
    return request_.folder;
  }

  std::string Into() const { return folder_ / "gathered"; }
  Results Gathered() {
    request_.folder = Into();
    return Load();
  }
};

TEST_F(GatherTest, PoolsDifferencesWithinNodesHoweverFastEachIs) {
  const std::string slow = Node("slow", 1), fast = Node("fast", 7);
  const Results alone = [&] {
    request_.folder = slow;
    return Load();
  }();
  const Status done = Gather({slow, fast}, Into());
  ASSERT_TRUE(done) << done.error().message;
  const Results results = Gathered();
  const Verdict& verdict = results.verdicts.front();
  EXPECT_EQ(verdict.outcome, Outcome::kWinner);
  EXPECT_EQ(verdict.recommended, alone.verdicts.front().recommended);
  EXPECT_NEAR(verdict.ratio.median, 1.2, 1e-9) << "a seventh or seven times as fast: not compared";
  EXPECT_EQ(verdict.rounds, 2 * alone.verdicts.front().rounds);
  EXPECT_EQ(results.confirmation_rounds, 2 * alone.confirmation_rounds);
  EXPECT_GT(alone.rounds_done, 0);
  EXPECT_EQ(results.rounds_done, 2 * alone.rounds_done);
  EXPECT_EQ(results.candidates[1].trials, 2 * alone.candidates[1].trials);
  EXPECT_TRUE(results.finished);
  EXPECT_EQ(results.nodes.array().size(), 2u);
}

TEST_F(GatherTest, KeepsEveryTrialWithItsKeysAndRequests) {
  const std::string one = Node("one", 1), two = Node("two", 2);
  ASSERT_TRUE(Gather({one, two}, Into()));
  const auto gathered = Store::Open(Into() + "/results.db").value();
  const auto first = Store::Open(one + "/results.db").value();
  const auto second = Store::Open(two + "/results.db").value();
  const auto all = gathered->Trials().value(), of_first = first->Trials().value(),
             of_second = second->Trials().value();
  ASSERT_EQ(all.size(), of_first.size() + of_second.size());
  std::set<Slot> slots(all.begin(), all.end());
  EXPECT_EQ(slots.size(), all.size()) << "no trial replaced another";
  const TrialRow &last = all.back(), &original = of_second.back();
  EXPECT_EQ(last.samples.front().value, original.samples.front().value);
  EXPECT_GT(last.round, original.round);
  EXPECT_EQ(gathered->KeysOf(last)->seed, second->KeysOf(original)->seed);
  EXPECT_EQ(gathered->KeysOf(last)->configuration, second->KeysOf(original)->configuration);
  EXPECT_EQ(last.log_path, two + "/" + original.log_path);
}

// While jobs still run their stores are gathered again and again.
TEST_F(GatherTest, ReplacesTheResultsGatheredBeforeAndNothingElse) {
  const std::string one = Node("one", 1), two = Node("two", 2), three = Node("three", 3);
  ASSERT_TRUE(Gather({one, two}, Into()));
  ASSERT_TRUE(Gather({one, two, three}, Into()));
  EXPECT_EQ(Gathered().nodes.array().size(), 3u);
  EXPECT_THAT(Gather({one, two}, three).error().message, HasSubstr("a sweep of its own"));
  EXPECT_THAT(Gather({one, Into()}, folder_ / "more").error().message,
              HasSubstr("gather the sweeps that it was made of"));
}

TEST_F(GatherTest, RefusesSweepsThatDoNotBelongTogether) {
  const std::string one = Node("one", 1);
  EXPECT_THAT(Gather({one}, Into()).error().message, HasSubstr("two sweeps at least, not 1"));
  EXPECT_THAT(Gather({one, one + "/"}, Into()).error().message, HasSubstr("twice"));
  EXPECT_THAT(Gather({one, folder_ / "none"}, Into()).error().message, HasSubstr("none"));
  Define(R"({"candidates":[{"max_num_seqs":11}],"rounds":6})");
  const std::string other = Node("other", 1);
  EXPECT_THAT(Gather({one, other}, Into()).error().message,
              HasSubstr("measured with another definition (candidates)"));
  Define(R"({"candidates":[{"max_num_seqs":11},{"max_num_seqs":13}],"rounds":6})");
  request_.meta.machine.Set("cpu_model", "another CPU");
  EXPECT_THAT(Gather({one, Node("kind", 1)}, Into()).error().message,
              HasSubstr("another machine (cpu_model) than"));
  Define(R"({"candidates":[{"max_num_seqs":11},{"max_num_seqs":13}],"rounds":9,"seed":5})");
  request_.meta.machine.Set("kernel", "6.99");
  EXPECT_TRUE(Gather({one, Node("like", 1)}, Into())) << "rounds, seed and kernel may differ";
}

// Nodes of one kind are not equally fast.
TEST_F(GatherTest, RefusesBatchesOfDifferentSizes) {
  const std::string one = Node("one", 1);
  const std::string slow = Node("slow", 1, R"sh(
case "$request" in *'"batch_prompts":4,'*) ;; *)
  echo trial >> "${0%/*}/trials"
  echo '{"samples":[],"suspect":[],"info":{"cut":["offline batch cut"]},"too_slow":"slow"}'
  exit 0 ;;
esac
)sh");
  const Status gathered = Gather({one, slow}, Into());
  ASSERT_FALSE(gathered);
  EXPECT_THAT(gathered.error().message,
              HasSubstr("/slow was measured with an offline batch reduced to 4 prompts, "));
}

// The baseline is best on both nodes, so that neither confirmed anything.
TEST_F(GatherTest, LetsTheDefaultsWinWithoutConfirmationIfTheyLeadOnEveryNode) {
  Define(R"({"candidates":[{"max_num_seqs":13},{"max_num_seqs":17}],"rounds":6})");
  std::string script = kChild;
  script.replace(script.find("*'\"max_num_seqs\":11,'*) speed=120"),
                 std::string("*'\"max_num_seqs\":11,'*) speed=120").size(),
                 "*'\"max_num_seqs\":17,'*) speed=80");
  std::vector<std::string> folders;
  for (const char* name : {"one", "two"}) {
    WriteChild(script.c_str());
    request_.folder = folder_ / name;
    ASSERT_TRUE(RunSweep(request_, progress_));
    folders.push_back(request_.folder);
  }
  const Results alone = Load();
  ASSERT_EQ(alone.verdicts.front().outcome, Outcome::kBaselineBest);
  ASSERT_TRUE(Gather(folders, Into()));
  const Results results = Gathered();
  EXPECT_EQ(results.verdicts.front().outcome, Outcome::kBaselineBest);
  EXPECT_EQ(results.candidates[2].status, alone.candidates[2].status);
}

// max_num_seqs 17 is slow on the first node alone, which leaves it in the worse half.
TEST_F(GatherTest, DropsACandidateOnlyIfEveryNodeDid) {
  Define(R"({"candidates":[{"max_num_seqs":11},{"max_num_seqs":12},{"max_num_seqs":17},
             {"max_num_seqs":18},{"max_num_seqs":19},{"max_num_seqs":20},{"max_num_seqs":21}],
             "rounds":9,"strategy":"halving","objectives":["throughput"]})");
  const std::string fast = "*'\"max_num_seqs\":11,'*) speed=120 ;;";
  std::vector<std::string> folders;
  for (const char* slow : {"50", "150"}) {
    std::string script = kChild;
    script.insert(script.find(fast), StrCat("*'\"max_num_seqs\":12,'*) speed=119 ;;\n  ",
                                            "*'\"max_num_seqs\":17,'*) speed=", slow, " ;;\n  "));
    WriteChild(script.c_str());
    request_.folder = folder_ / slow;
    ASSERT_TRUE(RunSweep(request_, progress_));
    folders.push_back(request_.folder);
  }
  request_.folder = folders[0];
  ASSERT_EQ(Load().candidates[3].status, CandidateStatus::kDropped);
  request_.folder = folders[1];
  ASSERT_NE(Load().candidates[3].status, CandidateStatus::kDropped);
  ASSERT_TRUE(Gather(folders, Into()));
  EXPECT_EQ(Gathered().candidates[3].status, CandidateStatus::kOk);
  std::filesystem::copy(folders[0], folder_ / "again", std::filesystem::copy_options::recursive);
  ASSERT_TRUE(Gather({folders[0], folder_ / "again"}, Into()));
  EXPECT_EQ(Gathered().candidates[3].status, CandidateStatus::kDropped);
}

}  // namespace
}  // namespace pinion::harness
