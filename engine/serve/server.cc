#include "engine/serve/server.h"

#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/process.h"
#include "engine/base/strings.h"
#include "engine/base/trace.h"
#include "engine/checkpoint/model.h"
#include "engine/comm/world.h"
#include "engine/host/affinity.h"
#include "engine/host/binding.h"
#include "engine/host/runtime.h"
#include "engine/run/join_processes.h"
#include "engine/run/replicas.h"
#include "engine/serve/admin.h"
#include "engine/serve/engine_group.h"
#include "engine/serve/frontend.h"
#include "engine/serve/http_setup.h"
#include "engine/serve/memory_budget.h"
#include "engine/serve/page_cache.h"
#include "engine/serve/prefill_sockets.h"
#include "engine/serve/replica_plan.h"
#include "engine/serve/routes.h"
#include "engine/serve/stray_signals.h"
#include "engine/serve/weight_files.h"
#include "engine/serve/worker_pool.h"

namespace pinion {
namespace {

// Beside what requests take: tokenizer, connections, the templates' helpers.
constexpr uint64_t kFrontEndBytes = uint64_t{64} << 20;

// Fills in the limits that depend on this machine. A sixteenth of the memory leaves the model its
// room; 512 MiB hold 1,300 waiting requests of 100,000 tokens, 4 bytes each.
void FitLimits(const Budget& budget, ServeOptions& options) {
  size_t& bytes = options.limits.request_memory_bytes;
  if (bytes == 0)
    bytes = static_cast<size_t>(
        std::min<uint64_t>(uint64_t{512} << 20, budget.memory_total_bytes / 16));
  options.engine.front_end_bytes = bytes + kFrontEndBytes;
}

void PinTo(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  if (auto pinned = SetThreadAffinity(cpus); !pinned)
    LogWarning(StrCat("cannot pin the front end: ", pinned.error().message));
}

void AdviseAllocator() {
  if (LoadedRuntime().allocator == "glibc")
    LogInfo(
        "using glibc's malloc; tcmalloc may be faster: apt install libtcmalloc-minimal4, "
        "then LD_PRELOAD=libtcmalloc_minimal.so.4 pinion serve ...");
}

// Ties the HTTP server, the API and the engine process together.
class Serving {
 public:
  explicit Serving(const ServeOptions& options)
      : options_(options),
        memory_(std::make_shared<MemoryBudget>(options.limits.request_memory_bytes)) {}
  ~Serving() {
    if (engine_) engine_->Close(0);  // it still needs the server
  }

  Status Listen() {
    PINION_ASSIGN(http_, HttpSetup::Make(options_, memory_, [this](const AccessRecord& exchange) {
                    if (router_)
                      frontend_->metrics().AddExchange(exchange, router_->Knows(exchange.path));
                  }));
    PINION_ASSIGN(server_, HttpServer::Listen(http_->options(), [this](auto request, auto reply) {
                    router_->Route(std::move(request), std::move(reply));
                  }));
    server_->OnSignal({SIGTERM, SIGINT}, [this] { OnSignal(); });
    server_->OnSignal({SIGHUP}, [this] { http_->FollowLogName(); });
    return {};
  }

  // `facts`: of the machine.
  Status StartEngine(std::vector<ReplicaPlan> replicas, AdminApi::Facts facts) {
    PINION_TRY(weight_files_.Connect(replicas));
    facts.profile = options_.profile;
    facts.page = options_.http.page;
    std::vector<EngineSupervisor::Options> supervised;
    for (const ReplicaPlan& replica : replicas)
      supervised.push_back({.command = Command(replica.options),
                            .cpus = replica.cpus,
                            .environment = replica.environment,
                            .engine_timeout_s = options_.faults.engine_timeout_s,
                            .restarts = RestartPolicy(options_.faults.max_engine_restarts),
                            .weights_fd = weight_files_.FdOf(replica)});
    engine_.emplace(
        *server_, std::move(supervised), static_cast<size_t>(options_.prefill_replicas),
        EngineGroup::Callbacks{
            [this](size_t replica, const EngineStats& stats) {
              frontend_->metrics().SetEngine(replica, stats);
            },
            [this](LinkMessage message) { OnMessage(std::move(message)); },
            [this](EngineState state, const std::string& reason) { OnEngineState(state, reason); },
            [this](Error error) {
              failure_ = std::move(error);
              server_->Stop();
            },
            [this](const std::vector<uint64_t>& prompts, const std::string& reason) {
              frontend_->metrics().AddRestart();
              frontend_->OnLost(prompts, reason);
            }});
    AdminApi::Actions actions;
    actions.send = [this](const LinkMessage& message) { engine_->Send(message); };
    actions.sleep = [this](int level, std::function<void()> done) {
      Sleep(level, std::move(done));
    };
    actions.wake_up = [this] { engine_->Wake(); };
    actions.awaited = [this](const char* operation, size_t requests) {
      frontend_->metrics().SetAwaitedRest(operation, requests);
    };
    actions.rested = [this](const char* operation, double seconds) {
      frontend_->metrics().AddRest(operation, seconds);
    };
    admin_.emplace(*server_, options_.faults, std::move(actions), std::move(facts));
    return engine_->Start();
  }

  // Opens the tokenizer while the engine process loads the weights. `shares_cpus`: with the engine.
  Status OpenModel(bool shares_cpus) {
    PINION_ASSIGN(ModelFiles files, FindModel(options_.engine.model));
    model_at_ = files.folder.empty() ? options_.engine.model : files.folder;
    PINION_ASSIGN(ServedModel model, ServedModelOf(files, options_));
    PINION_ASSIGN(tokenizer_, OpenTokenizer(files));
    if (options_.chat_template) tokenizer_->SetChatTemplate(*options_.chat_template);
    PINION_ASSIGN(model.output,
                  ChooseOutputFormat(options_.tool_call_parser, options_.reasoning_parser,
                                     tokenizer_->tool_template()));
    // If no CPU is reserved, the workers yield to the engine's threads.
    pool_.emplace(WorkerPool::Options{
        options_.limits.workers, shares_cpus ? kNiceness : 0, {}, {}, GrammarVocabularyOf(files)});
    frontend_.emplace(
        std::move(model), *tokenizer_, options_.limits, *pool_, *server_, memory_,
        [this](const LinkMessage& message) { return engine_->Send(message); }, engine_->size());
    router_.emplace(*admin_, *frontend_, options_.http.root_path);
    return {};
  }

  Result<int> Run() {
    server_->Run();
    const bool workers_ended = pool_->Stop();
    // Only an engine that has nothing left to do gets the time to end itself.
    const bool orderly = draining_ && !hurried_ && engine_->state() == EngineState::kReady;
    engine_->Close(!orderly ? 0 : trace::on() ? kTraceSeconds : kEndSeconds);
    if (!admin_->Stop(LeftOfDrain())) LeaveWithoutProfile();
    router_.reset();
    admin_.reset();
    if (!workers_ended) LeaveWithoutWorkers();
    if (failure_) return Unexpected(*failure_);
    return exit_code_;
  }

 private:
  static constexpr double kTraceSeconds = 30;  // for the engine to write its part
  static constexpr double kEndSeconds = 2;
  static constexpr double kPollSeconds = 0.05;
  static constexpr const char* kOwnJobs = "";  // the server's, in a pool of clients' jobs
  static constexpr int kNiceness = 5;          // a third of the time that another thread gets

  // A worker is inside a job that no one waits for any more, and would find no server when it ends.
  [[noreturn]] void LeaveWithoutWorkers() const {
    if (auto ended = trace::End(); !ended) LogWarning(ended.error().message);
    Leave();
  }

  // A thread is still writing a recording: not that of --trace, for there is only one at a time.
  [[noreturn]] void LeaveWithoutProfile() const {
    LogWarning(StrCat("the profile was not written to its end within ",
                      options_.faults.shutdown_timeout_s, " s (--shutdown-timeout)"));
    Leave();
  }

  [[noreturn]] void Leave() const {
    if (failure_) LogError(failure_->message);
    _exit(failure_ ? ExitCode(*failure_) : exit_code_);
  }

  // The rest of the time for a shutdown.
  double LeftOfDrain() const {
    if (!draining_ || hurried_) return 0;
    return std::max(0.0, drain_s_ - SecondsSince(drain_began_ns_));
  }

  void Drain(double seconds, std::function<void()> at_limit = {}) {
    draining_ = true;
    drain_s_ = seconds;
    drain_began_ns_ = NowNs();
    server_->Drain(seconds, std::move(at_limit));
  }

  std::string Url() const {
    return StrCat(options_.http.ssl_certfile.empty() ? "http://" : "https://",
                  HostAndPort(options_.host, server_->port()));
  }

  std::vector<std::string> Command(const EngineOptions& engine) const {
    std::vector<std::string> command = {SelfPath(), "engine-worker", "--options",
                                        ToJson(engine).Dump()};
    if (!options_.trace.empty()) command.insert(command.end(), {"--trace", options_.trace});
    if (options_.stand_in_rate)
      command.insert(command.end(), {"--stand-in", StrCat(*options_.stand_in_rate)});
    return command;
  }

  void OnMessage(LinkMessage message) {
    if (admin_->OnMessage(message)) return;
    if (const auto* ready = std::get_if<ReadyMessage>(&message)) KeepKvSize(*ready);
    frontend_->OnMessage(std::move(message));
  }

  // A cache that was sized from free memory has the same size after a restart, when more or less
  // may be free: the front end has admitted requests by it. (If ranks hold different numbers of
  // heads, it is a little smaller: the flag counts for the largest.)
  void KeepKvSize(const ReadyMessage& ready) {
    if (engine_->size() > 1 || options_.engine.kv_cache_bytes || std::exchange(kv_size_kept_, true))
      return;
    const auto info = Json::Parse(ready.server_info);
    const Json* cache = info ? info->Find("kv_cache") : nullptr;
    const Json* bytes = cache ? cache->Find("bytes") : nullptr;
    if (!bytes || bytes->integer() == 0) return;  // a stand-in has no cache
    EngineOptions engine = options_.engine;
    engine.kv_cache_bytes = static_cast<uint64_t>(bytes->integer()) /
                            static_cast<uint64_t>(std::max(1, engine.ranks()));
    engine_->SetCommand(Command(engine));
  }

  void OnEngineState(EngineState state, const std::string& reason) {
    if (state == EngineState::kReady) LogInfo(StrCat("ready: ", Url()));
    const EngineState before = std::exchange(engine_state_, state);
    if (state == EngineState::kRestarting && before != EngineState::kSleeping)
      frontend_->metrics().AddRestart();
    frontend_->OnEngineState(state, reason, engine_->retry_after_s());
    admin_->OnEngineState(state, reason);
    if (state != EngineState::kFailed) return;
    exit_code_ = 1;
    Drain(1);  // lets the answers out
  }

  // Refuses new requests, waits for the live ones as a shutdown does, and ends the engine process:
  // the kernel takes back all its memory, but the checkpoint stays in the page cache.
  void Sleep(int level, std::function<void()> done) {
    LogInfo(StrCat("falling asleep: ", LiveSequences(), " may finish within ",
                   options_.faults.shutdown_timeout_s, " s"));
    frontend_->OnEngineState(EngineState::kSleeping, "the server sleeps; POST /wake_up first");
    WaitForLive(options_.faults.shutdown_timeout_s, [this, level, done = std::move(done)] {
      engine_->Sleep([this, level, done] {
        weight_files_.Clear();
        frontend_->metrics().SetSleepLevel(level);
        if (level != 2) return Asleep(done);
        pool_->Submit(kOwnJobs, /*heavy=*/true, [this, done](WorkerPool::Worker&) {
          DropFromPageCache(model_at_);
          server_->Post([this, done] { Asleep(done); });
        });
      });
    });
  }

  static void Asleep(const std::function<void()>& done) {
    LogInfo("asleep: the engine process has ended");
    done();
  }

  void WaitForLive(double seconds, std::function<void()> then) {
    if (frontend_->live() > 0 && seconds > 0)
      return server_->After(
          kPollSeconds, [this, left = seconds - kPollSeconds, then = std::move(then)]() mutable {
            WaitForLive(left, std::move(then));
          });
    CutOff("the server falls asleep");
    then();
  }

  void CutOff(const char* reason) {
    if (frontend_->live() + frontend_->pending() == 0) return;
    LogWarning(StrCat("cut off ", LiveSequences(), " after ", options_.faults.shutdown_timeout_s,
                      " s (--shutdown-timeout)"));
    frontend_->FailAll({503, reason, "", ""});
  }

  std::string LiveSequences() const {
    const size_t live = frontend_->live(), pending = frontend_->pending();
    return StrCat(live, live == 1 ? " live sequence" : " live sequences",
                  pending > 0 ? StrCat(" and ", pending, " that wait for the engine") : "");
  }

  void OnSignal() {
    if (engine_->state() == EngineState::kStarting || draining_) {
      hurried_ = true;
      return server_->Stop();
    }
    LogInfo(StrCat("stopping: ", LiveSequences(), " may finish within ",
                   options_.faults.shutdown_timeout_s, " s; a second signal stops at once"));
    Drain(options_.faults.shutdown_timeout_s, [this] { CutOff("the server is shutting down"); });
  }

  const ServeOptions& options_;
  const std::shared_ptr<MemoryBudget> memory_;
  std::unique_ptr<HttpSetup> http_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<WorkerPool> pool_;
  std::optional<Frontend> frontend_;
  WeightFiles weight_files_;
  std::optional<EngineGroup> engine_;
  std::optional<AdminApi> admin_;
  std::optional<Router> router_;        // between the two
  std::unique_ptr<HttpServer> server_;  // destroyed first: its callbacks use all of the above
  std::string model_at_;                // folder or file of the checkpoint
  bool draining_ = false, hurried_ = false, kv_size_kept_ = false;
  double drain_s_ = 0;
  int64_t drain_began_ns_ = 0;
  EngineState engine_state_ = EngineState::kStarting;
  int exit_code_ = 0;
  std::optional<Error> failure_;
};

// The processes that compute the model with this one's engine, which a launcher has started
// together. An engine process that has left them cannot join them again.
Result<size_t> ProcessesOfEngine(ServeOptions& options) {
  const auto launched = Launched();
  if (!launched) return 1;
  const auto alone = [&](const char* flag) {
    return Fail(ErrorCode::kUsage,
                StrCat(flag, " needs engines of one process each, and ", launched->processes,
                       " were started together; leave it out, or start one process alone"));
  };
  if (options.data_parallel > 1) return alone("--data-parallel-size");
  if (options.faults.enable_sleep_mode) return alone("--enable-sleep-mode");
  options.faults.max_engine_restarts = 0;
  return launched->processes;
}

}  // namespace

Result<int> RunServer(ServeOptions options) {
  IgnoreStraySignals();
  // Writing to a chat helper or log reader that has exited must fail with EPIPE, not kill us.
  signal(SIGPIPE, SIG_IGN);
  // Of glibc: otherwise each worker keeps memory that a large request took, and the size from which
  // on memory goes back to the system when it is freed grows with every large body, up to 32 MiB.
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 4 << 20);
  if (!options.trace.empty()) PINION_TRY(trace::Begin(options.trace, "front end"));
  PINION_ASSIGN(const size_t processes, ProcessesOfEngine(options));
  PINION_TRY(CheckPrefillReplicas(options.engine, options.data_parallel, options.prefill_replicas));
  // The plan that the engine process will make too: same machine, same limits, same options.
  PINION_ASSIGN(const Machine machine, ThisMachine());
  PINION_ASSIGN(const Budget budget, BudgetHere(options.engine, machine));
  PINION_ASSIGN(const Plan plan, PlanReplicas(OptionsOfPart(options.engine, processes),
                                              options.data_parallel, machine, budget));
  FitLimits(budget, options);
  // Reports a wrong name before anything starts.
  PINION_ASSIGN(const ModelFiles files, FindModel(options.engine.model));
  // The front end's helper, and one of each engine, start when they are needed.
  options.engine.front_end_bytes += static_cast<uint64_t>(1 + options.data_parallel) *
                                    GrammarHelperBytes(GrammarVocabularyOf(files));
  PINION_ASSIGN(std::vector<ReplicaPlan> replicas,
                DivideAmongReplicas(options, plan, machine, budget));
  PrefillSockets sockets;
  PINION_TRY(sockets.Connect(static_cast<size_t>(options.prefill_replicas), replicas));
  Serving serving(options);
  PINION_TRY(serving.Listen());
  AdviseAllocator();
  PINION_TRY(serving.StartEngine(std::move(replicas),
                                 {.machine = MachineLayout(machine), .budget = ToJson(budget)}));
  LeaveWorldToChild();
  PinTo(plan.frontend_cpus);
  const bool shares_cpus = plan.frontend_cpus.empty();
  LogInfo(shares_cpus ? std::string("front end: shares the engine's CPUs")
                      : StrCat("front end: CPUs ", FormatCpuList(plan.frontend_cpus)));
  PINION_TRY(serving.OpenModel(shares_cpus));
  return serving.Run();
}

}  // namespace pinion
