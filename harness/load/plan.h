#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/load/arrivals.h"
#include "harness/load/conversations.h"

namespace pinion::harness {

// A load: requests, arrivals and end. The same for every server: settings that depend on one, and
// on how it is asked, are a LoadedServer (harness/load/generator.h).
struct LoadPlan {
  // So many conversations of this shape, drawn from the seed alone.
  WorkloadShape shape{};
  int num_prompts = 16;
  uint64_t seed = 1;
  // Files in place of the shape's made-up text: a ShareGPT file, with `answers` in place of its
  // answers' lengths if given, or a trace.
  std::string dataset{}, trace{};
  std::optional<Lengths> answers{};

  ArrivalPlan arrivals{};  // of an open loop; a trace has its own times
  // Closed loop: clients, each of which begins the next conversation when one ends. Open loop: the
  // most conversations at a time, beyond which they wait; 0: no limit.
  int concurrency = 1;

  // In seconds from the start. No request is sent after this, except the first one.
  double stop_sending_s = std::numeric_limits<double>::infinity();
  double deadline_s = std::numeric_limits<double>::infinity();  // running requests are cut off
  // If set and later: until then the deadline waits for the first request to end.
  std::optional<double> last_deadline_s{};

  bool open_loop() const { return arrivals.any() || !trace.empty(); }
  bool operator==(const LoadPlan&) const = default;
};

// The parts of a plan that are drawn at random, or read from its files.
struct DrawnLoad {
  std::vector<Conversation> conversations;
  // Of an open loop: when each begins, in seconds from the start, ascending.
  std::optional<std::vector<double>> arrival_s;
};

// For a server that counts text by `scale` and takes `longest` tokens of a prompt and its answer
// (0: unknown). Errors: a file cannot be read.
Result<DrawnLoad> Draw(const LoadPlan& plan, const TokenScale& scale, int longest);

std::string DescribeRequests(const LoadPlan& plan, const TokenScale& scale);
std::string DescribeArrivals(const LoadPlan& plan);

}  // namespace pinion::harness
