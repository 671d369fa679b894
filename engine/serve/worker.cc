#include "engine/serve/worker.h"

#include <poll.h>

#include <optional>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/trace.h"

namespace pinion {
namespace {

// Applies all messages that have arrived; returns their number, nullopt if the link is closed or
// broken.
std::optional<size_t> TakeMessages(Engine& engine, LinkSocket& link) {
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
      Request request{id, std::move(submit->prompt_ids), std::move(submit->params)};
      if (auto added = engine.Add(std::move(request)); !added)
        link.Send(RefusedMessage{id, added.error().message});
    } else if (const auto* abort = std::get_if<AbortMessage>(&**message)) {
      engine.Abort(abort->id);
    }
  }
}

bool SendEvents(const EventsMessage& batch, LinkSocket& link) {
  const TraceSpan span("send", "events", batch.events.size());
  return link.Send(batch);
}

// Waits until the link has something to read or, if bytes are unsent, can be written again.
void WaitForLink(const LinkSocket& link) {
  pollfd wait{link.fd(), POLLIN, 0};
  if (link.has_unsent()) wait.events |= POLLOUT;
  poll(&wait, 1, -1);
}

}  // namespace

void ServeLink(Engine& engine, LinkSocket& link) {
  EventsMessage batch;
  for (;;) {
    if (engine.idle()) WaitForLink(link);
    const auto taken = TakeMessages(engine, link);
    if (!taken || !link.Flush()) return;
    // An abort can leave the engine idle: the counts it changed are still worth sending.
    if (engine.idle() && *taken == 0) continue;
    batch.events.clear();
    engine.Step(batch.events);
    batch.stats = engine.stats();
    if (!SendEvents(batch, link)) return;
  }
}

int RunEngineWorker(const EngineOptions& options, int link_fd) {
  LinkSocket link(link_fd);
  auto engine = Engine::Start(options);
  if (!engine) {
    link.Send(FailedMessage{engine.error().code, engine.error().message});
    return ExitCode(engine.error());
  }
  link.Send(ReadyMessage{(*engine)->info().max_model_len, (*engine)->ServerInfo().Dump()});
  ServeLink(**engine, link);
  return 0;
}

}  // namespace pinion
