// Processes of /bin/sh in the engine's place.

#include "engine/serve/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "engine/base/strings.h"
#include "engine/host/affinity.h"

namespace pinion {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class SupervisorTest : public testing::Test {
 protected:
  void SetUp() override {
    HttpOptions http;
    http.port = 0;
    server_ = *HttpServer::Listen(http, [](HttpRequest, auto) {});
    std::ofstream(ready_, std::ios::binary) << EncodeFrame(ReadyMessage{100, 1000, 1, "{}"});
    // Far more than any case takes: a mistake ends the case instead of the test run.
    server_->After(60, [this] {
      ADD_FAILURE() << "waited in vain";
      server_->Stop();
    });
  }
  void TearDown() override {
    if (supervisor_) supervisor_->Close(0);
    std::filesystem::remove(ready_);
    std::filesystem::remove(notes_);
  }

  // `script` finds the Ready message in $0 and a file for notes in $1.
  void Supervise(const std::string& script, RestartPolicy restarts = RestartPolicy(100, 600, 0),
                 double timeout_s = 60, std::vector<int> cpus = {}) {
    supervisor_.emplace(
        *server_,
        EngineSupervisor::Options{.command = {"/bin/sh", "-c", script, ready_, notes_},
                                  .cpus = std::move(cpus),
                                  .engine_timeout_s = timeout_s,
                                  .least_loading_timeout_s = 0,
                                  .restarts = restarts},
        EngineSupervisor::Callbacks{[](LinkMessage) {},
                                    [this](EngineState state, const std::string& reason) {
                                      states_.push_back(state);
                                      reasons_ += reason;
                                      if (on_state_) on_state_(state);
                                    },
                                    [this](Error error) {
                                      cannot_start_ = error.message;
                                      server_->Stop();
                                    }});
    ASSERT_TRUE(supervisor_->Start());
  }

  void StopOn(EngineState state, int times = 1) {
    on_state_ = [this, state, left = times](EngineState now) mutable {
      if (now == state && --left == 0) server_->Stop();
    };
  }

  std::string Notes() const {
    std::ifstream file(notes_);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  const std::string ready_ = StrCat(testing::TempDir(), "/supervisor_ready.", getpid());
  const std::string notes_ = StrCat(testing::TempDir(), "/supervisor_notes.", getpid());
  std::unique_ptr<HttpServer> server_;
  std::optional<EngineSupervisor> supervisor_;
  std::function<void(EngineState)> on_state_;
  std::vector<EngineState> states_;
  std::string reasons_, cannot_start_;
};

// Ready, and gone once its link is closed.
constexpr const char* kGood = "cat $0 >&3; cat <&3 >/dev/null";
constexpr const char* kDying = "cat $0 >&3; echo a secret >&2; kill -9 $$";

TEST_F(SupervisorTest, RestartsAfterDeath) {
  StopOn(EngineState::kReady, 2);
  Supervise(StrCat("if [ -e $1 ]; then ", kGood, "; else : >$1; ", kDying, "; fi"));
  server_->Run();
  EXPECT_THAT(states_,
              ElementsAre(EngineState::kReady, EngineState::kRestarting, EngineState::kReady));
  EXPECT_THAT(reasons_, HasSubstr("is being restarted"));
  EXPECT_THAT(reasons_, Not(HasSubstr("secret")));
  EXPECT_THAT(reasons_, Not(HasSubstr("signal")));
}

TEST_F(SupervisorTest, BreaksAfterTooMany) {
  StopOn(EngineState::kFailed);
  Supervise(kDying, RestartPolicy(2, 600, 0));
  server_->Run();
  EXPECT_THAT(states_,
              ElementsAre(EngineState::kReady, EngineState::kRestarting, EngineState::kReady,
                          EngineState::kRestarting, EngineState::kReady, EngineState::kFailed));
}

TEST_F(SupervisorTest, KillsAnEngineThatDoesNotAnswer) {
  StopOn(EngineState::kRestarting);
  Supervise("cat $0 >&3; while :; do sleep 1; done", RestartPolicy(100, 600, 0), 0.4);
  server_->Run();
  EXPECT_THAT(states_, ElementsAre(EngineState::kReady, EngineState::kRestarting));
}

// Descriptor 4 is where the engine counts its progress; twenty times as often as it must.
constexpr const char* kWorksForAWhile =
    "for i in 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0; do"
    " printf $i >&4; sleep 0.05; done";

TEST_F(SupervisorTest, SparesAnEngineThatGetsOnWithALongStep) {
  StopOn(EngineState::kRestarting);
  Supervise(StrCat("cat $0 >&3; ", kWorksForAWhile, "; echo done >>$1"), RestartPolicy(100, 600, 0),
            1);
  server_->Run();
  EXPECT_EQ(Notes(), "done\n");
}

TEST_F(SupervisorTest, SparesAnEngineThatGetsOnWithLoading) {
  StopOn(EngineState::kReady);
  Supervise(StrCat(kWorksForAWhile, "; ", kGood), RestartPolicy(0), 1);
  server_->Run();
  EXPECT_THAT(states_, ElementsAre(EngineState::kReady));
}

TEST_F(SupervisorTest, ReplacesAnEngineThatHangsWhileLoading) {
  StopOn(EngineState::kReady);
  Supervise(StrCat("if [ -e $1 ]; then ", kGood, "; else : >$1; sleep 100; fi"),
            RestartPolicy(100, 600, 0), 0.4);
  server_->Run();
  EXPECT_THAT(states_, ElementsAre(EngineState::kRestarting, EngineState::kReady));
}

TEST_F(SupervisorTest, CountsAnEngineThatHangsWhileLoadingAsADeath) {
  StopOn(EngineState::kFailed);
  Supervise("sleep 100", RestartPolicy(1, 600, 0), 0.4);
  server_->Run();
  EXPECT_THAT(states_, ElementsAre(EngineState::kRestarting, EngineState::kFailed));
  EXPECT_THAT(reasons_, HasSubstr("too often"));
}

TEST_F(SupervisorTest, NamesItsReasonForGivingUp) {
  std::ofstream(notes_, std::ios::binary)
      << EncodeFrame(FailedMessage{ErrorCode::kFailed, "the checkpoint has gone"});
  testing::internal::CaptureStderr();
  StopOn(EngineState::kFailed);
  Supervise("cat $0 $1 >&3", RestartPolicy(0));
  server_->Run();
  supervisor_->Close(1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("(--max-engine-restarts): the server ends. The last time: the checkpoint "
                        "has gone\n"));
  EXPECT_THAT(reasons_, Not(HasSubstr("checkpoint")));
}

// It closes its link, and lives on for a while.
TEST_F(SupervisorTest, TellsOfTheLastDeathAtOnce) {
  bool lives = false;
  on_state_ = [&](EngineState state) {
    if (state != EngineState::kFailed) return;
    lives = kill(std::stoi(Notes()), 0) == 0;
    server_->Stop();
  };
  Supervise("echo $$ >$1; cat $0 >&3; exec 3>&-; sleep 100", RestartPolicy(0));
  server_->Run();
  EXPECT_TRUE(lives);
}

TEST_F(SupervisorTest, KillsAnEngineThatBreaksTheProtocol) {
  StopOn(EngineState::kRestarting);
  Supervise("cat $0 >&3; printf '\\377\\377\\377\\377\\377' >&3; while :; do sleep 1; done");
  server_->Run();
  EXPECT_THAT(states_, ElementsAre(EngineState::kReady, EngineState::kRestarting));
}

TEST_F(SupervisorTest, TellsWhyTheFirstStartFailed) {
  Supervise("echo the last line >&2; exit 3");
  server_->Run();
  EXPECT_THAT(cannot_start_, HasSubstr("ended with exit code 3"));
  EXPECT_THAT(cannot_start_, HasSubstr("the last line"));
  EXPECT_TRUE(states_.empty());
}

TEST_F(SupervisorTest, SleepsUntilWoken) {
  int left = 2;
  on_state_ = [&](EngineState state) {
    if (state != EngineState::kReady) return;
    if (left-- == 0) return server_->Stop();
    supervisor_->Sleep([&] { supervisor_->Wake(); });
  };
  // Its end is noted: it had the time to end itself.
  Supervise(StrCat(kGood, "; echo end >>$1"));
  server_->Run();
  EXPECT_EQ(Notes(), "end\nend\n");
  EXPECT_THAT(states_,
              ElementsAre(EngineState::kReady, EngineState::kSleeping, EngineState::kRestarting,
                          EngineState::kReady, EngineState::kSleeping, EngineState::kRestarting,
                          EngineState::kReady));
}

// Both the end of the link and the sleep wait for the first process: neither may kill the second.
TEST_F(SupervisorTest, AWaitEndsWithTheProcessItIsFor) {
  on_state_ = [&](EngineState state) {
    if (state == EngineState::kRestarting && states_.size() == 2)
      supervisor_->Sleep([&] { supervisor_->Wake(); });
    if (state == EngineState::kReady && states_.size() == 5)
      server_->After(2.5, [this] { server_->Stop(); });  // longer than such a wait
  };
  Supervise(
      StrCat("if [ -e $1 ]; then ", kGood, "; else : >$1; cat $0 >&3; exec 3>&-; sleep 0.1; fi"));
  server_->Run();
  EXPECT_THAT(states_,
              ElementsAre(EngineState::kReady, EngineState::kRestarting, EngineState::kSleeping,
                          EngineState::kRestarting, EngineState::kReady));
}

TEST_F(SupervisorTest, StartsOnTheServersCpus) {
  const auto cpus = ThreadAffinity();
  ASSERT_TRUE(cpus);
  StopOn(EngineState::kReady, 2);
  Supervise(StrCat("grep Cpus_allowed_list /proc/self/status >>$1; ", kDying),
            RestartPolicy(100, 600, 0), 60, {cpus->back()});
  server_->Run();
  const std::string line = StrCat("Cpus_allowed_list:\t", cpus->back(), "\n");
  EXPECT_EQ(Notes(), line + line);
}

TEST_F(SupervisorTest, LeaksNoDescriptor) {
  const auto open = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  std::vector<ptrdiff_t> counts;
  on_state_ = [&](EngineState state) {
    if (state != EngineState::kReady) return;
    counts.push_back(open());
    if (counts.size() == 20) server_->Stop();
  };
  Supervise(kDying);
  server_->Run();
  ASSERT_EQ(counts.size(), 20u);
  EXPECT_EQ(counts.back(), counts[1]);
}

}  // namespace
}  // namespace pinion
