#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include "engine/base/check.h"
#include "engine/base/json.h"
#include "engine/base/strings.h"
#include "engine/serve/http_parser.h"
#include "tests/fuzz/fuzz.h"

namespace pinion::fuzz {
namespace {

constexpr size_t kBudgetBytes = 3000;
constexpr HttpParser::Limits kLimits{.header_bytes = 1024, .header_fields = 8, .body_bytes = 2048};

struct Outcome {
  bool refused = false, done = false, keep_alive = false;
  std::string head, body, rest;
  bool operator==(const Outcome&) const = default;
};

void CheckRefusal(const HttpRefusal& refusal) {
  const int status = refusal.status;
  const std::set<int> known = {400, 413, 415, 431, 501, 503};
  CHECK(known.contains(status)) << status;
  CHECK(Json::Parse(refusal.body)) << refusal.body;
}

std::string Text(const HttpHead& head) {
  std::string text = StrCat(head.method, ' ', head.path, ' ', head.query, ' ', head.http11);
  for (const auto& [name, value] : head.headers.fields()) text += StrCat('\n', name, '=', value);
  CHECK(head.headers.fields().size() <= kLimits.header_fields);
  return text;
}

// As a connection does it, whose client sends `step` bytes at a time.
Outcome Read(std::string_view bytes, size_t step) {
  const auto budget = std::make_shared<MemoryBudget>(kBudgetBytes);
  Outcome outcome;
  {
    HttpParser parser(kLimits, budget);
    bool took_head = false;
    while (!bytes.empty() && !parser.done() && !parser.refusal()) {
      outcome.rest += bytes.substr(0, step);
      bytes.remove_prefix(std::min(step, bytes.size()));
      for (bool again = true; again;) {  // once more after the header
        outcome.rest.erase(0, parser.Feed(outcome.rest));
        again = !took_head && parser.header_done() && !parser.refusal();
        if (!again) continue;
        took_head = true;
        (void)parser.wants_continue();
        outcome.head = Text(parser.TakeHead());
        parser.SetClient("a client");
      }
      CHECK(outcome.rest.size() <= kLimits.header_bytes + step || parser.done() ||
            parser.refusal());
    }
    outcome.rest += bytes;
    if (parser.done()) {
      outcome.keep_alive = parser.keep_alive();
      const MemoryShare memory = parser.TakeMemory();
      outcome.body = parser.TakeBody();
      CHECK(outcome.body.size() <= kLimits.body_bytes);
      CHECK(outcome.body.size() <= memory.bytes()) << "the budget does not know of all of it";
    } else {
      outcome = Outcome();  // parts of a request are nobody's
    }
    outcome.done = parser.done();
    outcome.refused = parser.refusal().has_value();
    if (outcome.refused) CheckRefusal(*parser.refusal());
  }
  CHECK(budget->used() == 0);
  return outcome;
}

}  // namespace

void Http(std::string_view bytes) {
  const Outcome whole = Read(bytes, bytes.size());
  const size_t step = 1 + bytes.size() % 16;
  const Outcome pieces = Read(bytes, step);
  // A header in pieces is looked at again only when its end has come: it may be refused later, and
  // for another of its faults.
  if (whole.refused && !pieces.refused && !pieces.done) return;
  CHECK(whole == pieces) << "in pieces of " << step << ": refused " << whole.refused << " and "
                         << pieces.refused << ", done " << whole.done << " and " << pieces.done;
}

}  // namespace pinion::fuzz
