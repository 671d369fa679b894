#include "harness/load/slo_search.h"

#include <algorithm>
#include <cmath>

#include "engine/base/strings.h"
#include "harness/stats/distributions.h"

namespace pinion::harness {
namespace {

// Fits shares that never rise with the load: neighbours that do get their common mean.
void Fit(std::vector<SloLevel>& levels) {
  struct Pool {
    double good, total;
    size_t count;
  };
  std::vector<Pool> pools;
  for (const SloLevel& level : levels) {
    pools.push_back({static_cast<double>(level.good), static_cast<double>(level.total), 1});
    while (pools.size() > 1) {
      const Pool last = pools.back();
      Pool& before = pools[pools.size() - 2];
      if (before.good * last.total >= last.good * before.total) break;
      before = {before.good + last.good, before.total + last.total, before.count + last.count};
      pools.pop_back();
    }
  }
  size_t at = 0;
  for (const Pool& pool : pools)
    for (size_t i = 0; i < pool.count; ++i) levels[at++].fitted = pool.good / pool.total;
}

// Decides by the fit which levels pass, and where the boundary lies.
void Judge(SloBoundary& found, double attain) {
  Fit(found.levels);
  found.pass.reset();
  found.fail.reset();
  for (size_t i = 0; i < found.levels.size(); ++i) {
    found.levels[i].passes = found.levels[i].fitted >= attain;
    if (found.levels[i].passes) found.pass = i;
    if (!found.levels[i].passes && !found.fail) found.fail = i;
  }
}

// Describes the judged levels.
void Describe(SloBoundary& found, double attain) {
  for (SloLevel& level : found.levels) {
    level.share = static_cast<double>(level.good) / static_cast<double>(level.total);
    level.interval = ExactShareInterval(level.good, level.total);
  }
  if (found.pass && found.fail)
    found.is_cliff =
        found.levels[*found.pass].fitted - found.levels[*found.fail].fitted > attain / 2;
}

class Search {
 public:
  Search(const SloSearchOptions& options, const std::function<Result<LevelRun>(double load)>& run)
      : options_(options), run_(run) {}

  Result<SloBoundary> Run() {
    std::optional<double> next = Round(options_.start);
    while (next && found_.runs < options_.max_runs) {
      PINION_TRY(Try(*next));
      Judge(found_, options_.attain);
      next = Next();
    }
    found_.is_settled = !next;
    Describe(found_, options_.attain);
    return std::move(found_);
  }

 private:
  double Round(double load) const {
    load = std::clamp(load, options_.low, options_.high);
    return options_.whole ? std::round(load) : load;
  }

  Status Try(double load) {
    PINION_ASSIGN(const LevelRun run, run_(load));
    if (run.total == 0)
      return Fail(ErrorCode::kFailed, StrCat("no request was due at a load of ", load,
                                             "; raise the number of requests or the duration"));
    ++found_.runs;
    auto level = std::find_if(found_.levels.begin(), found_.levels.end(),
                              [load](const SloLevel& one) { return one.load >= load; });
    if (level == found_.levels.end() || level->load != load) {
      level = found_.levels.insert(level, SloLevel());
      level->load = load;
    }
    ++level->runs;
    level->good += run.good;
    level->total += run.total;
    return {};
  }

  const SloLevel& Level(const std::optional<size_t>& index) const { return found_.levels[*index]; }

  // The next load to try; nullopt if the search is done.
  std::optional<double> Next() const {
    if (!found_.fail) return Beyond(Level(found_.pass), 2);
    if (!found_.pass) return Beyond(Level(found_.fail), 0.5);
    const double pass = Level(found_.pass).load, fail = Level(found_.fail).load;
    const bool near = options_.whole ? fail - pass <= 1 : false;
    if (!near && fail / pass > 1 + options_.resolution) {
      const double middle = Round(std::sqrt(pass * fail));
      if (middle > pass && middle < fail) return middle;
    }
    return Again(Level(found_.pass), Level(found_.fail));
  }

  // A load beyond the last level, or the limit again until its result is settled.
  std::optional<double> Beyond(const SloLevel& last, double factor) const {
    const double next = Round(last.load * factor);
    if (next != last.load) return next;
    return last.runs < options_.repeats ? std::optional(last.load) : std::nullopt;
  }

  std::optional<double> Again(const SloLevel& pass, const SloLevel& fail) const {
    const SloLevel& fewer = pass.runs <= fail.runs ? pass : fail;
    if (fewer.runs < options_.repeats) return fewer.load;
    return std::nullopt;
  }

  const SloSearchOptions& options_;
  const std::function<Result<LevelRun>(double load)>& run_;
  SloBoundary found_;
};

}  // namespace

Status Validate(const SloSearchOptions& options) {
  const auto bad = [](const std::string& what) { return Fail(ErrorCode::kUsage, what); };
  if (!(options.low > 0 && options.low <= options.high))
    return bad(StrCat("loads from ", options.low, " to ", options.high,
                      " are not a range; the first must be above 0 and not above the second"));
  if (!(options.attain > 0 && options.attain <= 1))
    return bad(StrCat("the share of requests that must be good is ", options.attain,
                      "; it must be above 0 and at most 1"));
  if (!(options.resolution > 0)) return bad("the resolution must be above 0");
  if (options.repeats < 1 || options.max_runs < 2 * options.repeats)
    return bad(StrCat("at most ", options.max_runs, " runs are too few for ", options.repeats,
                      " at both ends; raise --max-runs"));
  return {};
}

std::optional<bool> IsGood(const RequestRecord& record, bool open_loop, const Slo& limits) {
  const RequestTrace trace{open_loop ? record.scheduled_ns : record.sent_ns, record.token_ns,
                           record.tokens()};
  const bool has_token = !trace.token_ns.empty();
  if (!record.cut) return record.complete() && has_token && Meets(trace, limits);
  const auto until_cut = [&](int64_t from_ns) {
    return static_cast<double>(record.ended_ns - from_ns) * 1e-9;
  };
  const double ttft_s = has_token ? TtftSeconds(trace) : until_cut(trace.sent_ns);
  const bool first_missed = limits.ttft_s && ttft_s > *limits.ttft_s;
  const bool pace_missed =
      limits.tpot_s && has_token &&
      until_cut(trace.token_ns.front()) > *limits.tpot_s * (record.output_len - 1);
  if (first_missed || pace_missed || (limits.e2el_s && until_cut(trace.sent_ns) > *limits.e2el_s))
    return false;
  if (has_token && !limits.tpot_s && !limits.e2el_s) return true;  // the first token decides
  return std::nullopt;
}

LevelRun RunOf(const ServerLoadResult& result, const Slo& limits) {
  LevelRun run;
  for (const RequestRecord& record : result.requests)
    run.good += IsGood(record, result.open_loop, limits).value_or(false) ? 1 : 0;
  run.total = result.requests.size() + result.never_sent;
  return run;
}

std::optional<double> LoadAttaining(const SloBoundary& boundary, double attain) {
  const auto& levels = boundary.levels;
  if (levels.empty()) return std::nullopt;
  const auto fail =
      std::find_if(levels.begin(), levels.end(), [](const SloLevel& one) { return !one.passes; });
  if (fail == levels.end()) return levels.back().load;
  if (fail == levels.begin()) {
    constexpr double kLeast = 0.01;  // so that the logarithm of a load that never passes is finite
    return fail->load * std::max(kLeast, (1 - attain) / (1 - fail->fitted));
  }
  const SloLevel& pass = *std::prev(fail);
  const double part = (pass.fitted - attain) / (pass.fitted - fail->fitted);
  return pass.load * std::pow(fail->load / pass.load, part);
}

SloBoundary JudgeLevels(std::vector<SloLevel> levels, double attain) {
  SloBoundary found;
  found.levels = std::move(levels);
  for (const SloLevel& level : found.levels) found.runs += level.runs;
  Judge(found, attain);
  Describe(found, attain);
  return found;
}

Result<SloBoundary> FindSloBoundary(const SloSearchOptions& options,
                                    const std::function<Result<LevelRun>(double load)>& run) {
  PINION_TRY(Validate(options));
  return Search(options, run).Run();
}

}  // namespace pinion::harness
