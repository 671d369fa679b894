#include "engine/serve/worker.h"

#include <poll.h>

#include <optional>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/trace.h"
#include "engine/serve/stand_in.h"

namespace pinion {
namespace {

// Adds the choices of a prompt, all of them or none.
Status AddChoices(Engine& engine, SubmitMessage submit) {
  for (uint32_t i = 0; i < submit.count; ++i) {
    Request request{submit.id + i, submit.prompt_ids, submit.params};
    request.priority = submit.priority;
    request.group = submit.count > 1 ? submit.id : 0;
    if (request.params.seed) *request.params.seed += i;
    if (auto added = engine.Add(std::move(request)); !added) {
      for (uint32_t earlier = 0; earlier < i; ++earlier) engine.Abort(submit.id + earlier);
      return added;
    }
  }
  return {};
}

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
      if (auto added = AddChoices(engine, std::move(*submit)); !added)
        link.Send(RefusedMessage{id, added.error().message});
    } else if (const auto* abort = std::get_if<AbortMessage>(&**message)) {
      for (uint32_t i = 0; i < abort->count; ++i) engine.Abort(abort->id + i);
    } else if (const auto* ping = std::get_if<PingMessage>(&**message)) {
      link.Send(PongMessage{ping->number});
    } else if (std::get_if<InfoRequestMessage>(&**message)) {
      link.Send(InfoMessage{engine.ServerInfo().Dump()});
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

int RunEngineWorker(const EngineOptions& options, int link_fd,
                    std::optional<double> stand_in_rate) {
  LinkSocket link(link_fd);
  auto engine = stand_in_rate ? StartStandIn(options, *stand_in_rate) : Engine::Start(options);
  if (!engine) {
    link.Send(FailedMessage{engine.error().code, engine.error().message});
    return ExitCode(engine.error());
  }
  const EngineInfo& info = (*engine)->info();
  link.Send(ReadyMessage{info.max_model_len, info.blocks * info.block_tokens,
                         (*engine)->ServerInfo().Dump()});
  ServeLink(**engine, link);
  return 0;
}

}  // namespace pinion
