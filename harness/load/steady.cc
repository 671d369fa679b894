#include "harness/load/steady.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "harness/load/summary.h"

namespace pinion::harness {
namespace {

struct Arrival {
  int64_t at_ns;
  double tokens;
};

// Of tokens in the window, of all requests: one that was cut off kept the engine busy as well.
std::vector<Arrival> ArrivalsIn(const ServerLoadResult& load, const SteadyWindow& window) {
  std::vector<Arrival> arrivals;
  for (const RequestRecord& record : load.requests) {
    if (record.token_ns.empty()) continue;
    const double each =
        static_cast<double>(record.tokens()) / static_cast<double>(record.token_ns.size());
    for (const int64_t at_ns : record.token_ns)
      if (at_ns > window.start_ns && at_ns <= window.end_ns) arrivals.push_back({at_ns, each});
  }
  return arrivals;
}

// Whether the tokens of ten slices rise or fall: t-test of the least-squares slope.
bool HasSlope(const ServerLoadResult& load, const SteadyWindow& window) {
  constexpr size_t kSlices = 10;
  constexpr double kLimit = 2.306;  // t of 8 degrees of freedom, 5 % on both sides
  std::array<double, kSlices> tokens{};
  const double slice_ns = static_cast<double>(window.end_ns - window.start_ns) / kSlices;
  for (const Arrival& one : ArrivalsIn(load, window)) {
    const auto slice =
        static_cast<size_t>(static_cast<double>(one.at_ns - window.start_ns) / slice_ns);
    tokens[std::min(slice, kSlices - 1)] += one.tokens;
  }
  double mean = 0, covariance = 0, spread = 0;
  for (const double count : tokens) mean += count / kSlices;
  for (size_t i = 0; i < kSlices; ++i) {
    const double x = static_cast<double>(i) - (kSlices - 1) / 2.0;
    covariance += x * (tokens[i] - mean);
    spread += x * x;
  }
  const double slope = covariance / spread;
  double residual = 0;
  for (size_t i = 0; i < kSlices; ++i) {
    const double x = static_cast<double>(i) - (kSlices - 1) / 2.0;
    residual += std::pow(tokens[i] - mean - slope * x, 2);
  }
  const double error = std::sqrt(residual / (kSlices - 2) / spread);
  return std::abs(slope) > kLimit * error + 1e-9 * mean;
}

// Those that a closed loop may have, the earliest first.
std::vector<SteadyWindow> WindowsOfClosed(const ServerLoadResult& load, int clients) {
  std::vector<int64_t> ends_ns;
  for (const RequestRecord& record : load.requests) ends_ns.push_back(record.ended_ns);
  std::sort(ends_ns.begin(), ends_ns.end());
  const auto step = static_cast<size_t>(clients);
  std::vector<SteadyWindow> windows;
  if (ends_ns.size() < 3 * step) return windows;
  const size_t last = ends_ns.size() - step;
  for (size_t first = step - 1; first + step <= last; first += step)
    windows.push_back({ends_ns[first], ends_ns[last], true});
  return windows;
}

std::vector<SteadyWindow> WindowsOfOpen(const ServerLoadResult& load) {
  std::vector<int64_t> due_ns;
  for (const RequestRecord& record : load.requests) due_ns.push_back(record.scheduled_ns);
  std::sort(due_ns.begin(), due_ns.end());
  std::vector<SteadyWindow> windows;
  if (due_ns.size() < 10) return windows;
  for (size_t tenths = 1; tenths <= kMostTenthsLeftOut; ++tenths)
    windows.push_back({due_ns[due_ns.size() * tenths / 10 - 1], due_ns.back(), true});
  return windows;
}

// The requests that count.
ServerLoadResult Within(const ServerLoadResult& load, const SteadyWindow& window) {
  ServerLoadResult within = load;
  std::erase_if(within.requests, [&](const RequestRecord& record) {
    const int64_t at_ns = load.open_loop ? record.scheduled_ns : record.ended_ns;
    return at_ns <= window.start_ns || at_ns > window.end_ns;
  });
  return within;
}

// Adds requests that were cut off: their times are at least these.
void AddCut(const ServerLoadResult& load, ServingSummary& summary) {
  for (const RequestRecord& record : load.requests) {
    if (!record.cut) continue;
    const auto since_due = [&](int64_t at_ns) {
      return static_cast<double>(at_ns - record.scheduled_ns) * 1e-9;
    };
    summary.e2el_s.push_back(since_due(record.ended_ns));
    summary.ttft_s.push_back(
        since_due(record.token_ns.empty() ? record.ended_ns : record.token_ns.front()));
  }
}

// Of a load that is taken whole and was cut off: its tokens and its time until then. Else a batch
// that ends a second too late would have the few tokens of those that were through.
void CountUntilCut(const ServerLoadResult& load, ServingSummary& summary) {
  int64_t first_ns = load.end_ns, cut_ns = load.start_ns;
  size_t tokens = 0;
  bool is_cut = false;
  for (const RequestRecord& record : load.requests) {
    if (!record.cut && !record.complete()) continue;
    is_cut |= record.cut;
    first_ns = std::min(first_ns, record.sent_ns);
    cut_ns = std::max(cut_ns, record.ended_ns);
    tokens += record.tokens();
  }
  const double seconds = static_cast<double>(cut_ns - first_ns) * 1e-9;
  if (!is_cut || seconds <= 0) return;
  const double longer = summary.window_s / seconds;
  summary.goodput *= longer;
  summary.requests_per_s *= longer;
  summary.window_s = seconds;
  summary.output_tokens = tokens;
  summary.output_tokens_per_s = static_cast<double>(tokens) / seconds;
}

}  // namespace

SteadyWindow SteadyWindowOf(const ServerLoadResult& load, LoadLevel level) {
  SteadyWindow window{load.start_ns, load.end_ns, false};
  for (const SteadyWindow& later :
       level.is_open() ? WindowsOfOpen(load) : WindowsOfClosed(load, level.clients)) {
    if (later.end_ns <= later.start_ns) break;
    if (!window.is_steady) window = later;
    if (HasSlope(load, later)) continue;
    return later;
  }
  return window;
}

ServingSummary SummariseWindow(const ServerLoadResult& load, const SteadyWindow& window,
                               const Slo& slo) {
  const ServerLoadResult within = window.is_steady ? Within(load, window) : load;
  ServingSummary summary = Summarise(TracesOf(within), slo);
  if (load.open_loop) AddCut(within, summary);
  if (!window.is_steady) {
    CountUntilCut(load, summary);
    return summary;
  }
  const double seconds = static_cast<double>(window.end_ns - window.start_ns) * 1e-9;
  double tokens = 0;
  for (const Arrival& one : ArrivalsIn(load, window)) tokens += one.tokens;
  summary.goodput *= summary.window_s / seconds;
  summary.window_s = seconds;
  summary.output_tokens_per_s = tokens / seconds;
  summary.requests_per_s = static_cast<double>(summary.requests) / seconds;
  return summary;
}

}  // namespace pinion::harness
