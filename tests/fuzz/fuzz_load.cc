#include <algorithm>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "harness/load/http_answer.h"
#include "harness/load/openai.h"
#include "harness/load/sse.h"
#include "tests/fuzz/fuzz.h"

namespace pinion::fuzz {
namespace {

using harness::Endpoint;
using harness::HttpAnswer;
using harness::SseReader;

struct Outcome {
  int status = 0;
  bool done = false, failed = false, keep_alive = false;
  std::string body;
  std::vector<std::string> events;
  bool operator==(const Outcome&) const = default;
};

void ReadEvent(std::string_view data) {
  for (const Endpoint endpoint : {Endpoint::kCompletions, Endpoint::kChat}) {
    const auto event = harness::ReadStreamEvent(data, endpoint);
    if (!event) continue;
    for (const auto& count : {event->prompt_tokens, event->output_tokens, event->cached_tokens})
      CHECK(count.value_or(0) >= 0);
  }
}

// As the client does it, to which the bytes come `step` at a time.
Outcome Read(std::string_view bytes, size_t step) {
  Outcome outcome;
  SseReader events([&](std::string_view data) { outcome.events.emplace_back(data); });
  HttpAnswer answer([&](std::string_view piece) {
    outcome.body += piece;
    events.Feed(piece);
  });
  std::string unread;
  while (!bytes.empty() && !answer.done() && answer.error().empty()) {
    unread += bytes.substr(0, step);
    bytes.remove_prefix(std::min(step, bytes.size()));
    unread.erase(0, answer.Feed(unread));
    CHECK(unread.size() <= HttpAnswer::kMostHeaderBytes + step || answer.done());
  }
  answer.End();
  outcome.status = answer.status();
  outcome.done = answer.done();
  outcome.failed = !answer.error().empty();
  outcome.keep_alive = answer.keep_alive();
  CHECK(outcome.done != outcome.failed) << answer.error();
  return outcome;
}

std::vector<std::string> Events(std::string_view bytes, size_t step) {
  std::vector<std::string> events;
  SseReader reader([&](std::string_view data) { events.emplace_back(data); });
  for (; !bytes.empty(); bytes.remove_prefix(std::min(step, bytes.size())))
    reader.Feed(bytes.substr(0, step));
  return events;
}

}  // namespace

void Load(std::string_view bytes) {
  const size_t step = 1 + bytes.size() % 16;
  const Outcome whole = Read(bytes, bytes.size());
  CHECK(whole == Read(bytes, step)) << "in pieces of " << step;
  for (const std::string& event : whole.events) ReadEvent(event);
  // As a stream by itself: few mutations leave the chunks around it as they must be.
  const auto events = Events(bytes, bytes.size());
  CHECK(events == Events(bytes, step)) << "in pieces of " << step;
  for (const std::string& event : events) ReadEvent(event);
}

}  // namespace pinion::fuzz
