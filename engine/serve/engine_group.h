#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/serve/replica_router.h"
#include "engine/serve/supervisor.h"

namespace pinion {

// Engine processes of the same model behind one front end (--data-parallel-size), or just one. To
// the front end they are one engine: its messages go to the replica that they are for, those that
// they send comes as if from one. The group is ready at first when all of its replicas are; later,
// while any is. A replica that dies is routed around and started again by its supervisor, until it
// has died too often: then the group has failed. Thread rule: the server's event loop.
class EngineGroup {
 public:
  struct Callbacks {
    // The statistics of one of them, after a step or, all 0, after its end; first of all.
    std::function<void(size_t replica, const EngineStats& stats)> stats;
    // As the supervisor's: anything but Pong and Failed. Statistics are the sum over all replicas,
    // /server_info has "replicas", and questions to all of them get one answer.
    std::function<void(LinkMessage)> message;
    std::function<void(EngineState, const std::string& public_reason)> state;
    std::function<void(Error)> cannot_start;
    // A replica has died, but the group goes on: by their first choices, the prompts that it had.
    std::function<void(const std::vector<uint64_t>& prompts, const std::string& public_reason)>
        lost;
  };

  // One of `replicas` each, of which the first `prefill` compute the prompts of the others. The
  // server outlives the object or, before it goes, Close is called.
  EngineGroup(HttpServer& server, std::vector<EngineSupervisor::Options> replicas, size_t prefill,
              Callbacks callbacks);
  EngineGroup(const EngineGroup&) = delete;
  EngineGroup& operator=(const EngineGroup&) = delete;

  // As the supervisor's, of all of them.
  Status Start();
  void SetCommand(std::vector<std::string> command);  // of a group of one
  // Which replica got it; 0 if all or none did.
  size_t Send(const LinkMessage& message);
  void Sleep(std::function<void()> done);
  void Wake();
  void Close(double seconds);

  EngineState state() const { return state_; }
  double retry_after_s() const;
  size_t size() const { return replicas_.size(); }

 private:
  struct Replica {
    std::unique_ptr<EngineSupervisor> supervisor;
    std::optional<ReadyMessage> ready;  // of the last process
    EngineStats stats;                  // of the running process
  };
  // A question that all replicas are asked.
  struct Question {
    std::set<size_t> waiting;               // for the answers of these
    std::map<size_t, LinkMessage> answers;  // by replica, whichever comes first
  };

  EngineSupervisor::Callbacks CallbacksOf(size_t index);
  void OnMessage(size_t index, LinkMessage message);
  void OnState(size_t index, EngineState state, const std::string& public_reason);
  void OnReady(size_t index);
  void OnDown(size_t index, EngineState state, const std::string& public_reason);
  void Enter(EngineState state, const std::string& public_reason);
  void AskAll(const LinkMessage& question, Question& asked);
  void StartProfile(const LinkMessage& message);
  void StopNextProfile();
  // Takes an answer of a replica, or that there will be none; true once all have answered.
  static bool Answered(size_t index, std::optional<LinkMessage> answer, Question& asked);
  bool AnsweredWithout(size_t index, const LinkMessage& question, Question& asked);
  void FinishQuestions(size_t index);
  void AnswerInfo();
  void AnswerReset();
  EngineStats StatsOfAll() const;
  ReadyMessage ReadyOfAll() const;
  // {"replicas": [each]} beside the first one's; a group of one: its own.
  std::string InfoOf(const std::vector<std::string>& infos) const;

  std::vector<Replica> replicas_;
  const size_t prefill_;  // the first ones, which get no requests
  Callbacks callbacks_;
  ReplicaRouter router_;
  EngineState state_ = EngineState::kStarting;
  EngineStats ended_;  // totals of replicas that died while the group went on
  Question info_, reset_;
  std::set<size_t> profiling_;  // their parts of a recording are written one after another
  std::string profile_error_;
  size_t still_awake_ = 0;
  bool together_ = false;  // all of them enter a state, which is told once
};

}  // namespace pinion
