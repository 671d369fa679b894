#include <algorithm>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "harness/load/openai.h"
#include "harness/load/sse.h"
#include "tests/fuzz/fuzz.h"

namespace pinion::fuzz {
namespace {

using harness::Endpoint;
using harness::SseReader;

void ReadEvent(std::string_view data) {
  for (const Endpoint endpoint : {Endpoint::kCompletions, Endpoint::kChat}) {
    const auto event = harness::ReadStreamEvent(data, endpoint);
    if (!event) continue;
    for (const auto& count : {event->prompt_tokens, event->output_tokens, event->cached_tokens})
      CHECK(count.value_or(0) >= 0);
  }
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
  const auto events = Events(bytes, bytes.size());
  CHECK(events == Events(bytes, step)) << "in pieces of " << step;
  for (const std::string& event : events) ReadEvent(event);
}

}  // namespace pinion::fuzz
