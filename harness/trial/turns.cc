#include "harness/trial/turns.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pinion::harness {
namespace {

// The longest wait for a server's memory: an eighth of a cache of 40 GiB takes 5 to 10 s.
constexpr double kSettleSeconds = 10;

// One of the two sides.
class Side {
 public:
  Side(LoadTarget* target, const TrialRequest& request, int64_t start_ns, const Clock& clock)
      : target_(target), request_(request), start_ns_(start_ns), clock_(clock) {}

  void WarmUp() {
    if (!target_) return;
    const TrialRequest wave = WaveRequest(0);
    if (auto warm = Measurement(*target_, wave, clock_.NowNs(), clock_).WarmUpAlone(); !warm)
      error_ = std::move(warm).error();
  }

  void Settle() {
    if (target_ && !error_) target_->Settle(kSettleSeconds);
  }

  void Take(int wave) {
    if (!target_ || error_ || !TooSlow().empty()) return;
    const TrialRequest request = WaveRequest(wave);
    auto result = Measurement(*target_, request, clock_.NowNs(), clock_).RunWarm(wave == 0);
    if (result) {
      waves_.push_back(std::move(*result));
    } else {
      error_ = std::move(result).error();
    }
  }

  Result<TrialResult> Finish() {
    if (error_) return Unexpected(std::move(*error_));
    if (!target_) return Fail(ErrorCode::kFailed, "its server did not start");
    if (!TooSlow().empty()) return std::move(waves_.back());
    return Joined(std::move(waves_));
  }

 private:
  std::string TooSlow() const { return waves_.empty() ? "" : waves_.back().too_slow; }

  // Prompts of its own; the deadline counts from the wave's start.
  TrialRequest WaveRequest(int wave) const {
    TrialRequest one = request_;
    one.seed ^= static_cast<uint64_t>(wave + 1) << 40;  // above Measurement's own streams
    if (one.deadline_s)
      one.deadline_s =
          std::max(0.0, *one.deadline_s - static_cast<double>(clock_.NowNs() - start_ns_) * 1e-9);
    return one;
  }

  LoadTarget* const target_;
  const TrialRequest& request_;
  const int64_t start_ns_;
  const Clock& clock_;
  std::vector<TrialResult> waves_;
  std::optional<Error> error_;
};

void AddOnce(const std::vector<std::string>& from, std::vector<std::string>& to) {
  for (const std::string& one : from)
    if (std::find(to.begin(), to.end(), one) == to.end()) to.push_back(one);
}

// Of each quantile the mean over the waves that have it, as of the samples.
void AddQuantiles(const std::vector<Distribution>& wave, std::vector<Distribution>& joined,
                  std::vector<int>& counts) {
  for (const Distribution& one : wave) {
    const auto found = std::find_if(joined.begin(), joined.end(), [&](const Distribution& other) {
      return other.metric == one.metric && other.level == one.level;
    });
    const auto at = static_cast<size_t>(found - joined.begin());
    if (found == joined.end()) {
      joined.push_back(one);
      counts.push_back(1);
      continue;
    }
    if (found->quantiles.size() != one.quantiles.size()) continue;
    found->n += one.n;
    ++counts[at];
    for (size_t i = 0; i < one.quantiles.size(); ++i)
      found->quantiles[i] += (one.quantiles[i] - found->quantiles[i]) / counts[at];
  }
}

}  // namespace

TrialResult Joined(std::vector<TrialResult> waves) {
  std::vector<std::vector<MetricValue>> samples;
  std::vector<int> requests, counts;
  std::vector<Distribution> quantiles;
  for (const TrialResult& wave : waves) {
    samples.push_back(wave.samples);
    requests.push_back(static_cast<int>(wave.requests.size()));
    AddQuantiles(wave.info.quantiles, quantiles, counts);
  }
  TrialResult joined = std::move(waves.front());
  joined.samples = MeansOf(samples);
  joined.info.waves = std::move(samples);
  joined.info.wave_requests = std::move(requests);
  joined.info.quantiles = std::move(quantiles);
  for (size_t i = 1; i < waves.size(); ++i) {
    TrialResult& wave = waves[i];
    std::move(wave.requests.begin(), wave.requests.end(), std::back_inserter(joined.requests));
    if (wave.info.slo)
      Pool(*wave.info.slo, joined.info.slo ? *joined.info.slo : joined.info.slo.emplace());
    AddOnce(wave.suspect, joined.suspect);
    AddOnce(wave.info.cut, joined.info.cut);
    std::move(wave.info.windows.begin(), wave.info.windows.end(),
              std::back_inserter(joined.info.windows));
    if (wave.info.batch_over_s)
      joined.info.batch_over_s =
          std::max(joined.info.batch_over_s.value_or(0), *wave.info.batch_over_s);
  }
  return joined;
}

PairResult MeasureInTurns(const std::array<LoadTarget*, 2>& targets, const PairRequest& request,
                          int64_t start_ns, const Clock& clock) {
  std::array<Side, 2> sides = {Side(targets[0], request.sides[0], start_ns, clock),
                               Side(targets[1], request.sides[1], start_ns, clock)};
  for (Side& side : sides) side.WarmUp();
  for (Side& side : sides) side.Settle();
  for (int wave = 0; wave < request.waves; ++wave)
    for (Side& side : sides) side.Take(wave);
  return {sides[0].Finish(), sides[1].Finish()};
}

}  // namespace pinion::harness
