#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/checkpoint/model.h"
#include "engine/comm/traffic.h"
#include "engine/decoder/cost.h"
#include "engine/host/binding.h"
#include "engine/kv/block_pool.h"
#include "engine/run/options.h"
#include "engine/run/task.h"
#include "engine/sample/params.h"
#include "engine/sample/sampled_token.h"
#include "engine/sched/scheduler.h"
#include "engine/text/grammar.h"
#include "engine/transfer/transfer_stats.h"
#include "engine/weights/format_plan.h"

namespace pinion {

struct Request {
  // Chosen by the caller, unique until its last event; without the bit PrefillRole::kOwnIds.
  uint64_t id = 0;
  std::vector<int32_t> prompt_ids;
  SamplingParams params;
  // Yields no tokens. The logits of its positions go to the ScoreSink, if there is one; only
  // without one are they rated (params.prompt_logprobs).
  bool score = false;
  int priority = 0;             // lower goes first
  uint64_t group = 0;           // the same for the choices of one prompt; 0: it is the only one
  std::string cache_salt = {};  // the prefix cache is shared with requests of the same salt only
  // Its output is of this grammar, as far as max_tokens and stop tokens let it come; null: it is
  // free. A request that scores ignores it.
  std::shared_ptr<const Grammar> grammar = {};
  // Yields no tokens, but TokenEvent::pooled: of models that embed or score, and of no others.
  bool pool = false;
  std::vector<int32_t> types = {};  // of the prompt's tokens, as Encoding's; empty: all 0
};

// One new token of one request, its end, or a part of its prompt that was rated.
struct TokenEvent {
  uint64_t request = 0;
  bool has_token = false;
  SampledToken token;
  // Of a request with params.prompt_logprobs: the prompt's tokens from its second on, in order, as
  // many as the step computed.
  std::vector<SampledToken> rated_prompt;
  FinishReason finish = FinishReason::kNone;  // != kNone: the request's last event
  std::string error =
      {};  // of an event with kAborted: why the engine gave the request up; or empty
  std::vector<float> pooled = {};  // of a request that pools, in its last event: Pooler
  size_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0, preemptions = 0;
  int64_t arrived_ns = 0, scheduled_ns = 0, first_token_ns = 0, now_ns = 0;  // CLOCK_MONOTONIC
};

// Logits of one prompt position of a score request (its row predicts position + 1). Called in order
// of position within a request, from one thread at a time, while Step runs.
using ScoreSink =
    std::function<void(uint64_t request, size_t position, const float* logits, size_t vocabulary)>;

struct EngineInfo {
  ModelTask task = ModelTask::kGenerate;
  std::string isa, dtype;
  kernels::KvDtype kv_dtype = kernels::KvDtype::kF32;
  std::string gemm;              // GEMM kernels by number of rows: kernels::Format(GemmRules)
  int threads = 0;               // of this process's ranks
  size_t processes = 1;          // that compute the model together
  std::optional<LinkCost> link;  // between them
  size_t max_model_len = 0, block_tokens = 0, blocks = 0;
  std::vector<Reach> kv_reaches = {Reach{}};  // of a sequence's block tables
  size_t kv_tokens = 0;                     // that the KV cache holds of sequences of max_model_len
  uint64_t weight_bytes = 0, kv_bytes = 0;  // over all ranks of all processes
  uint64_t state_bytes = 0;                 // of recurrent layers' states
  size_t states = SIZE_MAX;                 // sequences for which there are any, if limited
  size_t kept_states = 0;                   // further ones, of prefixes
  double load_s = 0, start_s = 0;           // until weights are packed; until ready
  Plan plan;                                // of this process's ranks
  Json stages;                              // [{"stage","seconds"}]
  // [{"rank","nodes":[planned],"weights":[{"node","bytes","pages"}],"kv":[the same],
  //   "remote_share":{"weights","kv"}}]: the nodes that hold the memory after warm-up, and the
  //   share
  // of it that is on none of those planned (null: nothing is resident, or none is planned); KV
  // counts only pages written so far. ServerInfo tells those of its own time.
  Json placement;
  std::string allocator, openmp;  // see Runtime
};

// All steps of one kind so far: those that compute prompts (their decodes included), or those that
// only decode.
struct StepWork {
  uint64_t tokens = 0;  // of prompts, or yielded
  double seconds = 0;
  StepCost least;  // that the steps had to read and to compute
  uint64_t steps = 0;
  Traffic exchanged = {};  // with other processes

  StepWork operator-(const StepWork& before) const;
  StepWork& operator+=(const StepWork& more);
};

struct EngineStats {
  SchedulerStats scheduler;
  KvStats kv;
  size_t blocks_used = 0, blocks_total = 0;
  uint64_t steps = 0, prompt_tokens = 0, output_tokens = 0;
  StepWork prefill, decode;
  uint64_t shared_kv_bytes = 0;  // reads saved: sequences with a common prefix read it together
  // Seconds for which the threads of each rank of this process waited for each other and for other
  // ranks, the mean of a rank's threads; part of the steps' time.
  std::vector<double> waited_s;
  Traffic traffic;  // of this process with those that compute the model with it
  TransferStats transfer;
};

// A model, loaded and ready: requests in, tokens out, one step at a time.
// Thread rule: call Start, Step and everything else from the same thread (it becomes thread 0 of
// rank 0 and is pinned). Start child processes (serve, chat helper) before Start.
class Engine {
 public:
  // Runs the stages: budget and plan, capacity check, load and pack, KV sizing, warm-up, ready.
  static Result<std::unique_ptr<Engine>> Start(const EngineOptions& options);
  virtual ~Engine() = default;

  virtual const EngineInfo& info() const = 0;
  virtual const ModelFiles& model() const = 0;
  virtual const FormatPlan& formats() const = 0;  // as the model's matrices lie in memory
  virtual EngineStats stats() const = 0;
  virtual Json ServerInfo() const = 0;  // options, plan, ISA, KV, stages: /server_info

  // An error (kUsage) leaves the engine as it was: the request can never run as it is.
  virtual Status Add(Request request) = 0;
  // The request's last event (kAborted) comes from the next Step, or from the one that ends what is
  // being computed of it; unknown ids are ignored.
  virtual void Abort(uint64_t request) = 0;
  virtual bool idle() const = 0;
  // For how many milliseconds Step would have nothing to do unless a request comes or wake_fd() has
  // something to read (-1: there is none); -1: without limit.
  virtual int wait_ms() const { return idle() ? -1 : 0; }
  virtual int wake_fd() const { return -1; }

  // Begins as many steps as may be in flight (one, but for stages of layers) and ends the oldest;
  // appends events for new tokens and finished requests, those of one request in order. Does
  // nothing if idle.
  virtual void Step(std::vector<TokenEvent>& events) = 0;
  // Does a few milliseconds of work that later steps would have to do; false: there is none left.
  // For the time in which a server is idle; steps do a little of it, too, unless several are in
  // flight.
  virtual bool Prepare() { return false; }
  virtual void SetScoreSink(ScoreSink sink) = 0;
  // Drops cached prefixes, so that a measurement starts cold.
  virtual void DropPrefixCache() = 0;
};

}  // namespace pinion
