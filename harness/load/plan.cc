#include "harness/load/plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/strings.h"
#include "engine/base/words.h"

namespace pinion::harness {

Result<DrawnLoad> Draw(const LoadPlan& plan, const TokenScale& scale, int longest) {
  const auto count = static_cast<size_t>(plan.num_prompts);
  DrawnLoad drawn;
  if (!plan.trace.empty()) {
    PINION_ASSIGN(Trace trace, ReadTrace(plan.trace));
    trace.arrival_s.resize(std::min(trace.arrival_s.size(), count));
    drawn.conversations = TraceConversations(trace, plan.seed, scale);
    drawn.arrival_s = std::move(trace.arrival_s);
    return drawn;
  }
  if (!plan.dataset.empty()) {
    PINION_ASSIGN(drawn.conversations, ReadShareGpt(plan.dataset, count, plan.shape.turns,
                                                    plan.seed, plan.answers, scale));
  } else {
    drawn.conversations = MakeConversations(plan.shape, count, plan.seed, scale, longest);
  }
  if (plan.open_loop())
    drawn.arrival_s = ArrivalSeconds(plan.arrivals, drawn.conversations.size(), plan.seed);
  return drawn;
}

std::string DescribeRequests(const LoadPlan& plan, const TokenScale& scale) {
  if (!plan.dataset.empty())
    return StrCat("dataset ", plan.dataset, ": ", plan.num_prompts, " conversations");
  const std::string text = plan.trace.empty()
                               ? Describe(plan.shape)
                               : StrCat("trace ", plan.trace, ": ", plan.num_prompts, " requests");
  if (scale.is_known) return text;
  return text + " (counting one token per word: the server reports no token counts)";
}

std::string DescribeArrivals(const LoadPlan& plan) {
  const auto& [rate, burstiness, ramp] = plan.arrivals;
  std::string text;
  if (!plan.open_loop())
    return "closed loop of " + Counted(static_cast<size_t>(plan.concurrency), "client");
  if (!plan.trace.empty()) {
    text = "open loop at the trace's times";
  } else {
    text = ramp ? StrCat("open loop, ", ramp->exponential ? "exponential" : "linear", " ramp from ",
                         ramp->from, " to ", ramp->to, " requests/s")
                : StrCat("open loop, ", *rate, " requests/s");
    text += burstiness == 1          ? ", Poisson"
            : std::isinf(burstiness) ? ", even gaps"
                                     : StrCat(", gamma gaps of shape ", burstiness);
  }
  if (plan.concurrency > 0) text += StrCat(", at most ", plan.concurrency, " at a time");
  return text;
}

}  // namespace pinion::harness
