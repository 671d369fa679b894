#include "engine/serve/worker.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "engine/base/descriptor.h"
#include "engine/base/log.h"
#include "engine/base/progress.h"
#include "engine/base/trace.h"
#include "engine/host/affinity.h"
#include "engine/serve/engine_process.h"
#include "engine/serve/stand_in.h"
#include "engine/serve/stray_signals.h"

namespace pinion {
namespace {

// Adds the choices of a prompt, all of them or none.
Status AddChoices(Engine& engine, SubmitMessage submit) {
  std::shared_ptr<const Grammar> grammar;
  if (submit.grammar) grammar = std::make_shared<Grammar>(std::move(*submit.grammar));
  for (uint32_t i = 0; i < submit.count; ++i) {
    Request request{submit.id + i, submit.prompt_ids, submit.params, submit.prompt_only};
    if (i > 0) request.params.prompt_logprobs = -1;  // the first choice has told them
    request.priority = submit.priority;
    request.cache_salt = submit.cache_salt;
    request.grammar = grammar;
    request.pool = submit.pool;
    request.types = submit.types;
    request.group = submit.count > 1 ? submit.id : 0;
    if (request.params.seed) *request.params.seed += i;
    if (auto added = engine.Add(std::move(request)); !added) {
      for (uint32_t earlier = 0; earlier < i; ++earlier) engine.Abort(submit.id + earlier);
      return added;
    }
  }
  return {};
}

// Records spans on request. Formatting them takes longer than a step, so a thread does that, and
// wakes this one when it is done.
class Profiler {
 public:
  explicit Profiler(std::vector<int> cpus)
      : cpus_(std::move(cpus)), done_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Profiler() {
    if (writer_.joinable()) writer_.join();
  }

  void Start(const std::string& path) {
    if (!writer_.joinable()) trace::Join(path, "engine");
  }
  void Stop() {
    if (writer_.joinable()) return;
    writer_ = std::thread([this] {
      // A thread begins where its maker runs: on the CPU of the team's first thread.
      if (!cpus_.empty()) static_cast<void>(SetThreadAffinity(cpus_));
      auto ended = trace::End();
      error_ = ended ? "" : ended.error().message;
      eventfd_write(done_.get(), 1);
    });
  }

  int fd() const { return done_.get(); }  // has something to read when Finished may have an answer
  // Once per Stop, when it is done.
  std::optional<ProfiledMessage> Finished() {
    eventfd_t count = 0;
    if (!writer_.joinable() || eventfd_read(done_.get(), &count) != 0) return std::nullopt;
    writer_.join();
    return ProfiledMessage{std::move(error_)};
  }

 private:
  const std::vector<int> cpus_;
  const Descriptor done_;
  std::string error_;  // the writer's until it is joined
  std::thread writer_;
};

// Applies all messages that have arrived; returns their number, nullopt if the link is closed or
// broken.
std::optional<size_t> TakeMessages(Engine& engine, LinkSocket& link, Profiler& profiler) {
  const TraceSpan span("receive");
  const bool open = link.Receive();
  for (size_t taken = 0;; ++taken) {
    auto message = link.Next();
    if (!message) {
      LogError(message.error().message);
      return std::nullopt;
    }
    if (!*message) return open ? std::optional(taken) : std::nullopt;
    if (auto* submit = std::get_if<SubmitMessage>(&**message)) {
      const uint64_t id = submit->id;
      if (auto added = AddChoices(engine, std::move(*submit)); !added)
        link.Send(RefusedMessage{id, added.error().message});
    } else if (const auto* abort = std::get_if<AbortMessage>(&**message)) {
      for (uint32_t i = 0; i < abort->count; ++i) engine.Abort(abort->id + i);
    } else if (const auto* ping = std::get_if<PingMessage>(&**message)) {
      link.Send(PongMessage{ping->number});
    } else if (const auto* profile = std::get_if<ProfileMessage>(&**message)) {
      profile->path.empty() ? profiler.Stop() : profiler.Start(profile->path);
    } else if (std::get_if<InfoRequestMessage>(&**message)) {
      link.Send(InfoMessage{engine.ServerInfo().Dump()});
    } else if (std::get_if<ResetCacheMessage>(&**message)) {
      engine.DropPrefixCache();
      link.Send(CacheResetMessage{engine.stats().blocks_used == 0});
    }
  }
}

bool SendEvents(EventsMessage step, LinkSocket& link) {
  const TraceSpan span("send", "events", step.events.size());
  constexpr size_t kMostBytes = FrameReader::kMaxPayloadBytes / 4;
  for (const EventsMessage& part : Divide(std::move(step), kMostBytes))
    if (!link.Send(part)) return false;
  return true;
}

// Waits until the link has something to read or, if bytes are unsent, can be written again; or
// until the profiler is done or the engine wakes; or for so many milliseconds (-1: without limit).
void WaitForLink(const LinkSocket& link, const Profiler& profiler, const Engine& engine, int ms) {
  pollfd wait[] = {
      {link.fd(), POLLIN, 0}, {profiler.fd(), POLLIN, 0}, {engine.wake_fd(), POLLIN, 0}};
  if (link.has_unsent()) wait[0].events |= POLLOUT;
  poll(wait, 3, ms);
}

}  // namespace

void ServeLink(Engine& engine, LinkSocket& link, const std::vector<int>& cpus) {
  EventsMessage batch;
  Profiler profiler(cpus);
  for (;;) {
    if (const int ms = engine.wait_ms(); ms != 0)
      WaitForLink(link, profiler, engine, engine.Prepare() ? 0 : ms);
    if (auto profiled = profiler.Finished()) link.Send(*profiled);
    const auto taken = TakeMessages(engine, link, profiler);
    if (!taken || !link.Flush()) return;
    // An abort can leave the engine idle: the counts it changed are still worth sending.
    if (engine.idle() && *taken == 0) continue;
    batch.events.clear();
    engine.Step(batch.events);
    batch.stats = engine.stats();
    if (!SendEvents(std::move(batch), link)) return;
  }
}

int RunEngineWorker(const EngineOptions& options, std::optional<double> stand_in_rate) {
  IgnoreStraySignals();
  IgnoreStopSignals();
  LinkSocket link(kEngineLinkFd);
  if (auto counting = progress::CountIn(kEngineProgressFd); !counting) {
    LogError(counting.error().message);
    return ExitCode(counting.error());
  }
  const std::vector<int> cpus = ThreadAffinity().value_or(std::vector<int>{});
  auto engine = stand_in_rate ? StartStandIn(options, *stand_in_rate) : Engine::Start(options);
  if (!engine) {
    link.Send(FailedMessage{engine.error().code, engine.error().message});
    return ExitCode(engine.error());
  }
  const EngineInfo& info = (*engine)->info();
  link.Send(ReadyMessage{info.max_model_len, info.kv_tokens,
                         std::min(static_cast<size_t>(options.max_num_seqs), info.states),
                         (*engine)->ServerInfo().Dump()});
  ServeLink(**engine, link, cpus);
  return 0;
}

}  // namespace pinion
