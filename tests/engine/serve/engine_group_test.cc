// Two processes of /bin/sh in the engines' places.

#include "engine/serve/engine_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "engine/base/strings.h"

namespace pinion {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

class GroupTest : public testing::Test {
 protected:
  void SetUp() override {
    HttpOptions http;
    http.port = 0;
    server_ = *HttpServer::Listen(http, [](HttpRequest, auto) {});
    server_->After(60, [this] {
      ADD_FAILURE() << "waited in vain";
      server_->Stop();
    });
  }
  void TearDown() override {
    if (group_) group_->Close(0);
    for (const std::string& file : files_) std::filesystem::remove(file);
  }

  // The text that the script of a replica finds in $0.
  std::string Frames(const std::string& name, const std::vector<LinkMessage>& messages) {
    std::string path = StrCat(testing::TempDir(), "/group_", name, ".", getpid());
    std::ofstream file(path, std::ios::binary);
    for (const LinkMessage& message : messages) file << EncodeFrame(message);
    files_.push_back(path);
    return path;
  }

  void Run(const std::vector<std::pair<std::string, std::string>>& scripts, int restarts = 100) {
    std::vector<EngineSupervisor::Options> replicas;
    for (const auto& [script, frames] : scripts)
      replicas.push_back({.command = {"/bin/sh", "-c", script, frames},
                          .least_loading_timeout_s = 0,
                          .restarts = RestartPolicy(restarts, 600, 0)});
    group_.emplace(
        *server_, std::move(replicas), prefill_,
        EngineGroup::Callbacks{
            [this](size_t replica, const EngineStats& stats) { stats_[replica].push_back(stats); },
            [this](LinkMessage message) {
              messages_.push_back(std::move(message));
              if (on_message_) on_message_(messages_.back());
            },
            [this](EngineState state, const std::string&) {
              states_.push_back(state);
              if (on_state_) on_state_(state);
            },
            [this](Error error) {
              cannot_start_ = error.message;
              server_->Stop();
            },
            [this](const std::vector<uint64_t>& prompts, const std::string&) {
              lost_.push_back(prompts);
              if (on_lost_) on_lost_();
              if (!goes_on_) server_->Stop();
            }});
    ASSERT_TRUE(group_->Start());
    server_->Run();
  }

  static ReadyMessage Ready(uint64_t tokens) {
    return {100 + tokens, tokens, 4, StrCat(R"({"kv":)", tokens, "}")};
  }

  std::vector<std::string> files_;
  std::unique_ptr<HttpServer> server_;
  std::optional<EngineGroup> group_;
  std::map<size_t, std::vector<EngineStats>> stats_;  // by replica
  std::vector<LinkMessage> messages_;
  std::vector<EngineState> states_;
  std::vector<std::vector<uint64_t>> lost_;
  std::string cannot_start_;
  bool goes_on_ = false;  // when prompts are lost
  size_t prefill_ = 0;    // of the replicas
  std::function<void(EngineState)> on_state_;
  std::function<void(const LinkMessage&)> on_message_;
  std::function<void()> on_lost_;
};

constexpr char kWaits[] = "cat $0 >&3; exec sleep 60";
constexpr char kLate[] = "sleep 0.3; cat $0 >&3; exec sleep 60";

TEST_F(GroupTest, IsReadyWhenAllAreAndTellsTheirTotals) {
  on_state_ = [this](EngineState) { server_->Stop(); };
  Run({{kWaits, Frames("a", {Ready(500)})}, {kLate, Frames("b", {Ready(400)})}});
  EXPECT_THAT(states_, ElementsAre(EngineState::kReady));
  ASSERT_THAT(messages_, SizeIs(1));
  const auto& ready = std::get<ReadyMessage>(messages_[0]);
  EXPECT_EQ(ready.kv_tokens, 400u) << "any prompt must fit into any of them";
  EXPECT_EQ(ready.max_model_len, 500u);
  EXPECT_EQ(ready.max_num_seqs, 8u);
  EXPECT_EQ(ready.server_info, R"({"kv":500,"replicas":[{"kv":500},{"kv":400}]})");
}

TEST_F(GroupTest, TellsOfReplicasInTheirOrderWhicheverAnswersFirst) {
  on_state_ = [this](EngineState) { group_->Send(InfoRequestMessage{}); };
  on_message_ = [this](const LinkMessage& message) {
    if (std::holds_alternative<InfoMessage>(message)) server_->Stop();
  };
  const std::string answer = Frames("c", {InfoMessage{R"({"kv":1})"}});
  Run({{StrCat("cat $0 >&3; sleep 0.3; cat ", answer, " >&3; exec sleep 60"),
        Frames("a", {Ready(500)})},
       {StrCat("cat $0 >&3; head -c 1 <&3 >&2; cat ", Frames("d", {InfoMessage{R"({"kv":2})"}}),
               " >&3; exec sleep 60"),
        Frames("b", {Ready(500)})}});
  EXPECT_EQ(std::get<InfoMessage>(messages_.back()).server_info,
            R"({"kv":1,"replicas":[{"kv":1},{"kv":2}]})");
}

// The second one dies, the first alone is asked, and dies without an answer once the second is
// back.
TEST_F(GroupTest, AReplicaThatIsUpAnswersForTheOnlyOneThatWasAsked) {
  goes_on_ = true;
  const std::string mark = Frames("asked", {});
  for (const char* which : {"-ready", "-was", "-asked", "-back"})
    std::filesystem::remove(files_.emplace_back(mark + which));
  const auto await = [&](const char* which) {
    return StrCat("while [ ! -e ", mark, which, " ]; do sleep 0.01; done; ");
  };
  on_state_ = [&](EngineState) { std::ofstream(mark + "-ready").flush(); };
  on_lost_ = [&] {
    if (lost_.size() > 1) return;
    group_->Send(InfoRequestMessage{});
    std::ofstream(mark + "-asked").flush();
  };
  on_message_ = [&](const LinkMessage& message) {
    if (std::holds_alternative<EventsMessage>(message)) std::ofstream(mark + "-back").flush();
    if (std::holds_alternative<InfoMessage>(message)) server_->Stop();
  };
  const std::string back = Frames("back", {Ready(500), EventsMessage{}});
  const std::string answer = Frames("answer", {InfoMessage{R"({"kv":2})"}});
  Run({{StrCat("cat $0 >&3; [ -e ", mark, "-back ] && exec sleep 60; head -c 1 <&3 >&2; ",
               await("-back"), "exit 1"),
        Frames("a", {Ready(500)})},
       {StrCat("if [ -e ", mark, "-was ]; then ", await("-asked"), "cat ", back,
               " >&3; head -c 1 <&3 >&2; cat ", answer, " >&3; exec sleep 60; fi; cat $0 >&3; ",
               await("-ready"), "touch ", mark, "-was; exit 1"),
        Frames("b", {Ready(500)})}});
  EXPECT_THAT(lost_, SizeIs(2));
  ASSERT_TRUE(std::holds_alternative<InfoMessage>(messages_.back()));
  EXPECT_EQ(std::get<InfoMessage>(messages_.back()).server_info,
            R"({"kv":2,"replicas":[{"kv":2}]})");
}

TEST_F(GroupTest, OneAloneIsAsItIs) {
  on_state_ = [this](EngineState) { server_->Stop(); };
  Run({{kWaits, Frames("a", {Ready(500)})}});
  EXPECT_EQ(std::get<ReadyMessage>(messages_.at(0)).server_info, R"({"kv":500})");
}

TEST_F(GroupTest, OneThatCannotStartEndsTheStart) {
  Run({{kWaits, Frames("a", {Ready(500)})},
       {"cat $0 >&3; exit 3", Frames("b", {FailedMessage{ErrorCode::kFailed, "no room"}})}});
  EXPECT_EQ(cannot_start_, "replica 1: no room");
  EXPECT_TRUE(states_.empty());
}

// The one that dies has every other prompt, and its end is told with those alone.
TEST_F(GroupTest, PromptsOfTheDeadAreLostAndTheOthersGoOn) {
  std::vector<size_t> placed;
  on_state_ = [this, &placed](EngineState) {
    for (uint64_t id = 0; id < 6; ++id) {
      SubmitMessage prompt;
      prompt.id = id;
      prompt.prompt_ids.assign(64, static_cast<int32_t>(id));
      placed.push_back(group_->Send(prompt));
    }
  };
  // Ends once it was sent something.
  Run({{"cat $0 >&3; head -c 1 <&3 >&2; exit 1", Frames("a", {Ready(500)})},
       {kWaits, Frames("b", {Ready(500)})}});
  EXPECT_THAT(placed, testing::AnyOf(ElementsAre(0, 1, 0, 1, 0, 1), ElementsAre(1, 0, 1, 0, 1, 0)))
      << "in turn";
  ASSERT_THAT(lost_, SizeIs(1));
  EXPECT_THAT(lost_[0], SizeIs(3));
  EXPECT_EQ(group_->state(), EngineState::kReady);
  EXPECT_THAT(states_, ElementsAre(EngineState::kReady));
}

// The first one reports and dies; the second one reports 0.3 s later.
TEST_F(GroupTest, TotalsOfTheDeadStay) {
  EventsMessage first, second;
  first.stats.output_tokens = 7;
  first.stats.scheduler.running = 5;
  second.stats.output_tokens = 10;
  second.stats.scheduler.running = 1;
  first.stats.prefill = {1, 0.5, {1, 2, 3, 4}, 5, {6, 6, 7, 0.25}};
  second.stats.prefill = {10, 2, {10, 20, 30, 40}, 50, {60, 60, 70, 4}};
  first.stats.decode.steps = 3;
  second.stats.decode.steps = 4;
  first.stats.shared_kv_bytes = 100;
  second.stats.shared_kv_bytes = 200;
  first.stats.traffic = {.calls = 1, .delays = 1, .bytes = 20, .seconds = 0.5};
  second.stats.traffic = {.calls = 2, .delays = 2, .bytes = 30, .seconds = 0.25};
  first.stats.transfer = {1, 2, 3, 4, 5};
  second.stats.transfer = {10, 20, 30, 40, 50};
  const std::string ready = Frames("b", {Ready(500)}), later = Frames("c", {second});
  goes_on_ = true;
  on_message_ = [this](const LinkMessage& message) {
    if (std::holds_alternative<EventsMessage>(message) && !lost_.empty()) server_->Stop();
  };
  const std::string was_here = Frames("here", {});
  std::filesystem::remove(was_here);
  const std::string once = StrCat("[ -e ", was_here, " ] && exec sleep 60; touch ", was_here, "; ");
  Run({{StrCat(once, "cat $0 >&3; sleep 0.1; cat ", Frames("d", {first}), " >&3; exit 1"),
        Frames("a", {Ready(500)})},
       {StrCat("cat $0 >&3; sleep 0.5; cat ", later, " >&3; exec sleep 60"), ready}});
  const EngineStats& stats = std::get<EventsMessage>(messages_.back()).stats;
  EXPECT_EQ(stats.output_tokens, 17u);
  EXPECT_EQ(stats.scheduler.running, 1u) << "what ran there runs no more";
  EXPECT_EQ(stats.prefill.tokens, 11u);
  EXPECT_EQ(stats.prefill.seconds, 2.5);
  EXPECT_EQ(stats.prefill.least.bytes(), 33u);
  EXPECT_EQ(stats.prefill.least.operations(), 77u);
  EXPECT_EQ(stats.prefill.steps, 55u);
  EXPECT_EQ(stats.prefill.exchanged.calls, 66u);
  EXPECT_EQ(stats.prefill.exchanged.bytes, 77u);
  EXPECT_EQ(stats.prefill.exchanged.seconds, 4.25);
  EXPECT_EQ(stats.decode.steps, 7u);
  EXPECT_EQ(stats.shared_kv_bytes, 300u);
  EXPECT_EQ(stats.traffic.calls, 3u);
  EXPECT_EQ(stats.traffic.delays, 3u);
  EXPECT_EQ(stats.traffic.bytes, 50u);
  EXPECT_EQ(stats.traffic.seconds, 0.75);
  EXPECT_EQ(stats.transfer.orders, 11u);
  EXPECT_EQ(stats.transfer.failed, 22u);
  EXPECT_EQ(stats.transfer.given_tokens, 33u);
  EXPECT_EQ(stats.transfer.taken_tokens, 44u);
  EXPECT_EQ(stats.transfer.bytes, 55u);
  // Of each alone, until the first one has ended.
  EXPECT_EQ(stats_.at(0).at(0).output_tokens, 7u);
  EXPECT_EQ(stats_.at(0).back().scheduler.running, 0u);
  EXPECT_EQ(stats_.at(1).back().output_tokens, 10u);
}

TEST_F(GroupTest, OneThatComputesPromptsForOthersGetsNoRequests) {
  prefill_ = 1;
  std::vector<size_t> placed;
  on_state_ = [this, &placed](EngineState) {
    for (uint64_t id = 0; id < 3; ++id) {
      SubmitMessage prompt;
      prompt.id = id;
      prompt.prompt_ids.assign(64, static_cast<int32_t>(id));
      placed.push_back(group_->Send(prompt));
    }
    server_->Stop();
  };
  Run({{kWaits, Frames("a", {Ready(300)})}, {kWaits, Frames("b", {Ready(500)})}});
  EXPECT_THAT(placed, ElementsAre(1, 1, 1));
  const auto& ready = std::get<ReadyMessage>(messages_.at(0));
  EXPECT_EQ(ready.max_num_seqs, 4u) << "of those that answer";
  EXPECT_EQ(ready.kv_tokens, 500u);
}

// Both die, and the one that answers comes back last. Files tell each when it is its turn: the
// first dies once the group is ready, the second once the first is being started again.
TEST_F(GroupTest, OneThatComputesPromptsForOthersIsNotAReadyGroup) {
  prefill_ = 1;
  goes_on_ = true;
  const std::string mark = Frames("mark", {});
  for (const char* which : {"-ready", "-first", "-second", "-first-again", "-first-back"})
    std::filesystem::remove(files_.emplace_back(mark + which));
  size_t placed = 0;
  on_state_ = [&](EngineState state) {
    std::ofstream(mark + "-ready").flush();
    if (states_.size() <= 2 || state != EngineState::kReady) return;
    SubmitMessage prompt;
    prompt.prompt_ids.assign(64, 1);
    placed = group_->Send(prompt);
    server_->Stop();
  };
  const auto await = [&](const char* which) {
    return StrCat("while [ ! -e ", mark, which, " ]; do sleep 0.01; done; ");
  };
  const auto leave = [&](const char* which) { return StrCat("touch ", mark, which, "; "); };
  const auto dies_once = [&](const char* was_here, const std::string& until,
                             const std::string& comes_back) {
    return StrCat("if [ -e ", mark, was_here, " ]; then ", comes_back,
                  "exec sleep 60; fi; cat $0 >&3; ", until, leave(was_here), "exit 1");
  };
  Run({{dies_once("-first", await("-ready"),
                  leave("-first-again") + await("-second") + "cat $0 >&3; " + leave("-first-back")),
        Frames("a", {Ready(500)})},
       {dies_once("-second", await("-first-again"), await("-first-back") + "cat $0 >&3; "),
        Frames("b", {Ready(500)})}});
  EXPECT_THAT(states_,
              ElementsAre(EngineState::kReady, EngineState::kRestarting, EngineState::kReady));
  EXPECT_EQ(placed, 1u) << "by the one that answers, which is back";
}

TEST_F(GroupTest, OneThatDiesTooOftenEndsTheGroup) {
  on_state_ = [this](EngineState state) {
    if (state == EngineState::kFailed) server_->Stop();
  };
  Run({{kWaits, Frames("a", {Ready(500)})}, {"cat $0 >&3; exit 1", Frames("b", {Ready(500)})}}, 0);
  EXPECT_EQ(states_.back(), EngineState::kFailed);
}

}  // namespace
}  // namespace pinion
