#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/exec/executor.h"
#include "engine/kv/block_tables.h"
#include "engine/kv/state_pool.h"
#include "engine/sched/scheduler.h"
#include "engine/transfer/messages.h"
#include "engine/transfer/transfer_stats.h"

namespace pinion {

struct StartedModel;

// The work that an engine does for others, or has others do for it (--role). Keys and
// values change hands by way of the prefix caches: one engine computes a prompt's full blocks,
// another takes them into its own cache, and then admits the sequence as if it had computed that
// prefix before. If anything fails on the way, the sequence is computed where it is.
//
// The base is an engine with neither role. Thread rule: the engine's.
class PrefillRole {
 public:
  // In the ids of sequences that belong to no request here. The highest bit is the front end's
  // (BeamRounds).
  static constexpr uint64_t kOwnIds = uint64_t{1} << 62;

  // The parts of the engine that it belongs to; they outlive it.
  struct Parts {
    BlockPool& pool;
    std::vector<Reach> reaches;
    StatePool* states;  // null: the model has none
    Scheduler& scheduler;
    Executor& executor;
    int vocabulary;  // tokens
    // Ends a sequence that the scheduler has.
    std::function<void(uint64_t id)> abort;
  };

  virtual ~PrefillRole() = default;

  // A new sequence that has passed Scheduler::Check. True: it is kept until another engine has
  // computed its prompt, and given to the scheduler then.
  virtual bool Keep(std::unique_ptr<Sequence>& /*sequence*/) { return false; }
  virtual size_t kept() const { return 0; }
  virtual std::unique_ptr<Sequence> Abort(uint64_t /*id*/) { return nullptr; }  // a kept one
  // Whether a sequence is another engine's: its events go to no client here.
  virtual bool Owns(uint64_t /*id*/) const { return false; }

  // Takes what has arrived, for about so long but at least something; sequences may go to the
  // scheduler.
  virtual void BeforeStep(int64_t /*ns*/) {}
  // StepCaller::Written, for the step of these slices.
  virtual void DuringStep(const std::vector<Slice>& /*slices*/,
                          std::span<const size_t> /*image_bytes*/) {}
  // Between a step's Commit and the end of the sequences that it has finished.
  virtual void AfterStep(const std::vector<std::unique_ptr<Sequence>>& /*finished*/) {}

  virtual bool idle() const { return true; }  // nothing is kept, owned or still to be sent
  virtual int wake_fd() const { return -1; }  // readable when there is something to take
  // After how many milliseconds BeforeStep has something to do even if nothing arrives; -1: never.
  virtual int wait_ms() const { return -1; }
  virtual Json ToJson() const { return Json(); }  // for /server_info
  virtual TransferStats stats() const { return {}; }
};

// Facts that must be equal in engines which hand keys and values to each other.
Facts FactsOfTransfer(const StartedModel& model);

// The part that the model's options name; `cpus`: where its network may run, none: anywhere.
// Returns a function because the engine makes its parts from the model.
using MakePrefillRole = std::function<std::unique_ptr<PrefillRole>(PrefillRole::Parts)>;
Result<MakePrefillRole> StartPrefillRole(const StartedModel& model, const std::vector<int>& cpus);

}  // namespace pinion
