#include "engine/serve/server.h"

#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/process.h"
#include "engine/base/strings.h"
#include "engine/base/trace.h"
#include "engine/host/binding.h"
#include "engine/host/runtime.h"
#include "engine/model/model.h"
#include "engine/run/start.h"
#include "engine/serve/engine_link.h"
#include "engine/serve/frontend.h"
#include "engine/serve/http_setup.h"
#include "engine/serve/memory_budget.h"
#include "engine/serve/worker_pool.h"

namespace pinion {
namespace {

// Beside what requests take: tokenizer, connections, the templates' helpers.
constexpr uint64_t kFrontEndBytes = uint64_t{64} << 20;

// Fills in the limits that depend on this machine. A sixteenth of the memory leaves the model its
// room; 512 MiB hold some thousand requests of 100,000 tokens.
void FitLimits(const Budget& budget, ServeOptions& options) {
  size_t& bytes = options.limits.request_memory_bytes;
  if (bytes == 0)
    bytes = static_cast<size_t>(
        std::min<uint64_t>(uint64_t{512} << 20, budget.memory_total_bytes / 16));
  options.engine.front_end_bytes = bytes + kFrontEndBytes;
}

void PinTo(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(static_cast<size_t>(cpu), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0)
    LogWarning(StrCat("cannot pin the front end to CPUs ", FormatCpuList(cpus), ": ",
                      std::strerror(errno)));
}

void AdviseAllocator() {
  if (LoadedRuntime().allocator == "glibc")
    LogInfo(
        "using glibc's malloc; tcmalloc may be faster: apt install libtcmalloc-minimal4, "
        "then LD_PRELOAD=libtcmalloc_minimal.so.4 pinion serve ...");
}

// The engine process's standard error: passed on, and its tail kept for the error message.
class LogTail {
 public:
  explicit LogTail(int fd) : fd_(fd) { fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK); }
  ~LogTail() { close(fd_); }
  LogTail(const LogTail&) = delete;
  LogTail& operator=(const LogTail&) = delete;
  int fd() const { return fd_; }

  // Passes on all bytes that have arrived. False at the end of the file.
  bool Read() {
    char chunk[4096];
    for (;;) {
      const ssize_t got = read(fd_, chunk, sizeof chunk);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return got < 0 && errno == EAGAIN;
      [[maybe_unused]] const ssize_t ignored =
          write(STDERR_FILENO, chunk, static_cast<size_t>(got));
      tail_.append(chunk, static_cast<size_t>(got));
      if (tail_.size() > 2 * kKeptBytes) tail_.erase(0, tail_.size() - kKeptBytes);
    }
  }

  std::string LastLine() const {
    const std::string_view text = Trim(tail_);
    return std::string(text.substr(text.rfind('\n') + 1));  // npos + 1 is 0
  }

 private:
  static constexpr size_t kKeptBytes = 4096;
  int fd_;
  std::string tail_;
};

std::string Describe(const Process::Exit& exit, const std::string& last_line) {
  std::string text = "the engine process ";
  text += exit.signal != 0
              ? StrCat("was ended by signal ", exit.signal, " (", strsignal(exit.signal), ")")
              : StrCat("ended with exit code ", exit.code);
  if (!last_line.empty()) text += StrCat("; its last line was: ", last_line);
  return text;
}

// The engine process and its log.
struct EngineProcess {
  // `link_fd` becomes the child's end of the link and is closed here.
  static Result<EngineProcess> Start(const ServeOptions& options, int link_fd) {
    int log[2];
    if (pipe2(log, O_CLOEXEC) != 0)
      return Fail(ErrorCode::kIo, StrCat("cannot make a pipe: ", std::strerror(errno)));
    auto tail = std::make_unique<LogTail>(log[0]);
    Process::Options start;
    start.arguments = {SelfPath(), "engine-worker", "--options", ToJson(options.engine).Dump()};
    if (!options.trace.empty())
      start.arguments.insert(start.arguments.end(), {"--trace", options.trace});
    if (options.stand_in_rate)
      start.arguments.insert(start.arguments.end(), {"--stand-in", StrCat(*options.stand_in_rate)});
    start.pass_fds = {{link_fd, 3}};
    start.stderr_fd = log[1];
    auto process = Process::Start(start);
    close(link_fd);
    close(log[1]);
    if (!process) return Unexpected(std::move(process).error());
    return EngineProcess{std::move(*process), std::move(tail)};
  }

  Process process;
  std::unique_ptr<LogTail> log;
};

// Ties the HTTP server, the API and the engine process together.
class Serving {
 public:
  explicit Serving(const ServeOptions& options)
      : options_(options),
        memory_(std::make_shared<MemoryBudget>(options.limits.request_memory_bytes)) {}

  Status Listen() {
    PINION_ASSIGN(http_, HttpSetup::Make(options_, memory_));
    PINION_ASSIGN(server_, HttpServer::Listen(http_->options(), [this](auto request, auto reply) {
                    frontend_->Handle(std::move(request), std::move(reply));
                  }));
    server_->OnSignal([this] { OnSignal(); });
    return {};
  }

  Status StartEngine() {
    PINION_ASSIGN(const auto ends, MakeLinkPair());
    link_.emplace(
        *server_, ends.first,
        EngineLink::Callbacks{[this](LinkMessage message) { OnMessage(std::move(message)); },
                              [this](const std::string& why) { OnEngineGone(why); }});
    PINION_ASSIGN(auto started, EngineProcess::Start(options_, ends.second));
    engine_.emplace(std::move(started));
    server_->WatchReadable(engine_->log->fd(), [this] { return engine_->log->Read(); });
    return {};
  }

  // Opens the tokenizer while the engine process loads the weights. `shares_cpus`: with the engine.
  Status OpenModel(bool shares_cpus) {
    PINION_ASSIGN(const ModelFiles files, FindModel(options_.engine.model));
    ServedModel model;
    model.root = options_.engine.model;
    model.name = options_.served_model_name.empty() ? model.root : options_.served_model_name;
    model.vocabulary = static_cast<size_t>(files.spec.vocabulary);
    PINION_ASSIGN(model.defaults, ReadApiDefaults(files.generation_config));
    PINION_ASSIGN(tokenizer_, OpenTokenizer(files));
    // Where no CPU is reserved, the workers yield to the engine's threads.
    pool_.emplace(WorkerPool::Options{options_.limits.workers, shares_cpus ? kNiceness : 0, {}});
    frontend_.emplace(std::move(model), *tokenizer_, options_.limits, *pool_, *server_, memory_,
                      [this](const LinkMessage& message) { link_->Send(message); });
    return {};
  }

  Result<int> Run() {
    server_->Run();
    const bool workers_ended = pool_->Stop();
    if (engine_->process.running() && draining_ && !hurried_) {
      link_.reset();  // the engine exits when its link is closed
      engine_->process.Wait(trace::on() ? kTraceSeconds : 2);
    }
    engine_->process.Stop(0);
    engine_->log->Read();
    if (!workers_ended) LeaveWithoutWorkers();
    if (failure_) return Unexpected(*failure_);
    return exit_code_;
  }

 private:
  static constexpr double kTraceSeconds = 30;  // for the engine to write its part
  static constexpr int kNiceness = 5;          // a third of the time that another thread gets

  // A worker is inside a job that no one waits for any more, and would find no server when it ends.
  [[noreturn]] void LeaveWithoutWorkers() const {
    if (failure_) LogError(failure_->message);
    if (auto ended = trace::End(); !ended) LogWarning(ended.error().message);
    _exit(failure_ ? ExitCode(*failure_) : exit_code_);
  }

  std::string Url() const {
    return StrCat(options_.http.ssl_certfile.empty() ? "http://" : "https://", options_.host, ":",
                  server_->port());
  }

  void OnMessage(LinkMessage message) {
    if (auto* failed = std::get_if<FailedMessage>(&message)) {
      failure_ = Error{failed->code, failed->message};
      return server_->Stop();
    }
    const bool was_ready = frontend_->ready();
    frontend_->OnMessage(std::move(message));
    if (!was_ready && frontend_->ready()) LogInfo(StrCat("ready: ", Url()));
  }

  void OnEngineGone(std::string why) {
    if (failure_) return;  // the engine has reported the reason itself
    auto exit = engine_->process.Wait(1);
    if (!exit) exit = engine_->process.Stop(0);
    engine_->log->Read();
    if (why.empty()) why = Describe(*exit, engine_->log->LastLine());
    exit_code_ = 1;
    if (!frontend_->ready()) {
      failure_ = Error{ErrorCode::kFailed, why};
      return server_->Stop();
    }
    LogError(why);
    frontend_->OnEngineState(EngineState::kFailed, why);
    draining_ = true;
    server_->Drain(1);  // lets the answers out
  }

  void OnSignal() {
    if (!frontend_->ready() || std::exchange(draining_, true)) {
      hurried_ = true;
      server_->Stop();
      return;
    }
    LogInfo(StrCat("stopping: ", frontend_->live(),
                   frontend_->live() == 1 ? " live sequence" : " live sequences",
                   " may finish within ", options_.faults.shutdown_timeout_s,
                   " s; a second signal stops at once"));
    server_->Drain(options_.faults.shutdown_timeout_s);
  }

  const ServeOptions& options_;
  const std::shared_ptr<MemoryBudget> memory_;
  std::unique_ptr<HttpSetup> http_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<WorkerPool> pool_;
  std::optional<Frontend> frontend_;
  std::optional<EngineProcess> engine_;
  std::optional<EngineLink> link_;
  std::unique_ptr<HttpServer> server_;  // destroyed first: its callbacks use all of the above
  bool draining_ = false, hurried_ = false;
  int exit_code_ = 0;
  std::optional<Error> failure_;
};

}  // namespace

Result<int> RunServer(ServeOptions options) {
  // Writing to a chat helper or log reader that has exited must fail with EPIPE, not kill us.
  signal(SIGPIPE, SIG_IGN);
  // Of glibc: otherwise each worker keeps memory that a large request took.
  mallopt(M_ARENA_MAX, 2);
  if (!options.trace.empty()) PINION_TRY(trace::Begin(options.trace, "front end"));
  // The plan that the engine process will make too: same machine, same limits, same options.
  PINION_ASSIGN(const Machine machine, ThisMachine());
  PINION_ASSIGN(const Budget budget, ComputeBudget(machine));
  PINION_ASSIGN(const Plan plan, PlanFor(options.engine, machine, budget));
  FitLimits(budget, options);
  PINION_TRY(FindModel(options.engine.model));  // report a wrong name before anything starts
  Serving serving(options);
  PINION_TRY(serving.Listen());
  AdviseAllocator();
  PINION_TRY(serving.StartEngine());  // before pinning: the child inherits our affinity
  PinTo(plan.frontend_cpus);
  const bool shares_cpus = plan.frontend_cpus.empty();
  LogInfo(shares_cpus ? std::string("front end: shares the engine's CPUs")
                      : StrCat("front end: CPUs ", FormatCpuList(plan.frontend_cpus)));
  PINION_TRY(serving.OpenModel(shares_cpus));
  return serving.Run();
}

}  // namespace pinion
