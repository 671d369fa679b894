// How requests end before they are answered: with the engine, at their deadline, or because their
// client has left.

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/strings.h"
#include "engine/serve/frontend.h"
#include "engine/serve/incoming.h"

namespace pinion {
namespace {

constexpr double kDeadlineTickS = 0.1;  // how late a deadline may be noticed

}  // namespace

bool Frontend::Cancel(const std::shared_ptr<Generation>& generation) {
  const auto found = live_.find(generation->first_id());
  if (found != live_.end()) {
    deadlines_.erase(found->second.deadline);
    live_.erase(found);
    if (generation->beam_rules())
      beams_.Abort(generation->first_id(), generation->choices());
    else
      send_(AbortMessage{generation->first_id(), static_cast<uint32_t>(generation->choices())});
    return true;
  }
  if (const auto written = writing_.find(generation->first_id()); written != writing_.end()) {
    deadlines_.erase(written->second.deadline);
    writing_.erase(written);
    return true;
  }
  const auto waits = std::find_if(pending_.begin(), pending_.end(), [&](const Request& request) {
    return request.generation == generation;
  });
  if (waits == pending_.end()) return false;
  deadlines_.erase(waits->deadline);
  pending_.erase(waits);
  return true;
}

void Frontend::OnEngineState(EngineState state, const std::string& public_reason,
                             double retry_after_s) {
  state_ = state;
  reason_ = public_reason;
  retry_after_ = StrCat(static_cast<int64_t>(std::ceil(std::max(1.0, retry_after_s))));
  const ApiError error{503, public_reason, "", ""};
  switch (state) {
    case EngineState::kStarting:
      break;
    case EngineState::kReady:
      for (auto waiting = std::exchange(pending_, {}); !waiting.empty(); waiting.pop_front())
        Submit(std::move(waiting.front()));
      break;
    case EngineState::kRestarting:
      FailLive(error);
      break;
    case EngineState::kSleeping:
      FailPending(error);
      break;
    case EngineState::kFailed:
      FailAll(error);
      break;
  }
}

void Frontend::OnLost(const std::vector<uint64_t>& prompts, const std::string& public_reason) {
  for (const uint64_t first_choice : prompts) {
    const auto found = Find(beams_.ChoiceOf(first_choice));
    if (found == live_.end()) continue;  // another prompt of the same request was lost as well
    const auto generation = found->second.generation;
    Cancel(generation);
    Fail(*generation, {503, public_reason, "", ""});
  }
}

void Frontend::FailLive(const ApiError& error) {
  if (!ready()) beams_.Clear();
  while (!live_.empty()) {
    const auto generation = live_.begin()->second.generation;
    if (ready()) {
      Cancel(generation);
    } else {  // there is no engine to tell
      deadlines_.erase(live_.begin()->second.deadline);
      live_.erase(live_.begin());
    }
    Fail(*generation, error);
  }
}

void Frontend::Fail(Generation& generation, const ApiError& error) {
  generation.Fail(error, error.status == 503 ? retry_after_ : "");
}

void Frontend::FailAll(const ApiError& error) {
  FailLive(error);
  FailPending(error);
}

void Frontend::FailPending(const ApiError& error) {
  while (!pending_.empty()) {
    const auto generation = pending_.front().generation;
    Cancel(generation);
    Fail(*generation, error);
  }
}

void Frontend::WatchDeadlines() {
  if (watching_deadlines_ || (deadlines_.empty() && incoming_.empty())) return;
  watching_deadlines_ = true;
  server_.After(kDeadlineTickS, [this] {
    watching_deadlines_ = false;
    EndOverdue();
    WatchDeadlines();
  });
}

void Frontend::EndOverdue() {
  while (!deadlines_.empty() && deadlines_.begin()->first <= NowNs()) {
    const auto generation = deadlines_.begin()->second;
    Cancel(generation);
    generation->Fail(Overdue(generation->limit_s()));
  }
  const int64_t now = NowNs();
  for (Incoming* incoming : incoming_) {  // no more than choices may wait
    if (incoming->over || incoming->deadline_ns() > now) continue;
    incoming->over = true;
    Refuse(*incoming->reply, incoming->request.path, Overdue(incoming->limit_s));
  }
}

ApiError Frontend::Overdue(double limit_s) {
  metrics_.AddDeadlineExceeded();
  return {504,
          StrCat("no complete answer within ", limit_s, " s (",
                 limit_s < limits_.request_timeout_s ? "timeout" : "--request-timeout", ")"),
          "", ""};
}

}  // namespace pinion
