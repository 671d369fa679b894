#include "engine/run/step_clock.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

constexpr double kRows[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};

// Operations that take as long as reading a byte, of a CPU's bandwidth and speed; decides only how
// decodes, which read all keys for one row, weigh against prompts. One number for all: an error
// becomes one of the curve.
constexpr double kOpsPerByte = 16;

// Chunks that reach this share of the curve's highest speed are at full speed.
constexpr double kFullSpeed = 0.85;

// How far a step moves the curve towards itself: far while a point is new.
constexpr double kFirstRate = 0.5, kRate = 0.2;
constexpr int kFirstVisits = 5;

// A step that is stopped for other reasons says nothing of the next.
constexpr double kMostOff = 2;

constexpr double kErrorRate = 0.05;  // the margin remembers about twenty steps
constexpr double kMostMargin = 1.5;

double Operations(const StepCost& cost) { return static_cast<double>(cost.operations()); }

}  // namespace

MeasuredStepTimes::MeasuredStepTimes(const CostModel& cost, bool tiles)
    : cost_(cost), tiles_(tiles) {
  const double first = Operations(cost_.Rows(0, 1, 0)), second = Operations(cost_.Rows(1, 1, 0));
  // A window of one token would make both equal; no model has it.
  const double seen_token_ops = second - first;
  row_ops_ = std::max(1.0, first - seen_token_ops);
  head_rows_ = (Operations(cost_.Rows(0, 1, 1)) - first) / row_ops_;
  for (size_t i = 0; i < points_.size(); ++i) points_[i].rows = kRows[i];
}

void MeasuredStepTimes::Add(StepLoad& load, size_t first, size_t rows, bool logits) const {
  const StepCost cost = cost_.Rows(first, rows, 0);
  load.rows += rows;
  load.logit_rows += logits ? 1 : 0;
  const double products = static_cast<double>(rows) * row_ops_;
  load.attention += (std::max(0.0, Operations(cost) - products) +
                     static_cast<double>(cost.kv_bytes) * kOpsPerByte) /
                    row_ops_;
}

double MeasuredStepTimes::Rows(const StepLoad& load) const {
  return static_cast<double>(load.rows) + static_cast<double>(load.logit_rows) * head_rows_;
}

double MeasuredStepTimes::Seconds(const StepLoad& load) const {
  if (load.rows == 0) return 0;
  return Curve(Rows(load)) + load.attention * attention_s_;
}

double MeasuredStepTimes::Margin() const { return std::min(1 + 2 * error_, kMostMargin); }

size_t MeasuredStepTimes::full_speed_rows() const {
  const auto least = static_cast<double>(granule());
  double highest = 0;
  for (const Point& point : points_)
    if (point.rows >= least) highest = std::max(highest, point.rows / point.seconds);
  const auto full_speed = [&](const Point& point) {
    return point.rows >= least && point.rows >= kFullSpeed * highest * point.seconds;
  };
  return static_cast<size_t>(std::find_if(points_.begin(), points_.end(), full_speed)->rows);
}

double MeasuredStepTimes::PrefillSeconds(size_t first, size_t rows) const {
  StepLoad load;
  Add(load, first, rows, false);
  const auto full = static_cast<double>(full_speed_rows());
  return static_cast<double>(rows) * Curve(full) / full + load.attention * attention_s_;
}

// ---- The curve ---------------------------------------------------------------------------------

MeasuredStepTimes::Place MeasuredStepTimes::Find(double rows) const {
  size_t upper = 0;
  while (upper + 1 < points_.size() && points_[upper].rows < rows) ++upper;
  if (upper == 0) return {0, 0, 0};
  if (rows >= points_[upper].rows) return {upper, upper, 0};
  const double from = points_[upper - 1].rows;
  return {upper - 1, upper, (rows - from) / (points_[upper].rows - from)};
}

double MeasuredStepTimes::Curve(double rows) const {
  const auto [lower, upper, weight] = Find(rows);
  const double seconds =
      points_[lower].seconds + (points_[upper].seconds - points_[lower].seconds) * weight;
  const Point& last = points_.back();
  return rows > last.rows ? seconds * rows / last.rows : seconds;
}

// The work of so many rows, in operations: their products, and reading the experts that they
// choose. The other weights do not count: beyond the known points, products take longer than
// reading them.
double MeasuredStepTimes::Work(double rows) const {
  const StepCost experts = cost_.ExpectedExperts(static_cast<size_t>(rows));
  return rows * row_ops_ + static_cast<double>(experts.weight_bytes) * kOpsPerByte;
}

// Points without steps of their own: on the line between their neighbours; beyond the last known
// one in proportion to their work, before the first as long as it.
void MeasuredStepTimes::FillUnknown() {
  const Point* before = nullptr;
  for (auto at = points_.begin(); at != points_.end(); ++at) {
    if (at->known) {
      before = &*at;
      continue;
    }
    const auto after = std::find_if(at, points_.end(), [](const Point& p) { return p.known; });
    if (after == points_.end()) {
      if (before) at->seconds = before->seconds * Work(at->rows) / Work(before->rows);
    } else if (!before) {
      at->seconds = after->seconds;
    } else {
      const double weight = (at->rows - before->rows) / (after->rows - before->rows);
      at->seconds = before->seconds + (after->seconds - before->seconds) * weight;
    }
  }
}

void MeasuredStepTimes::Start(const std::vector<StepSample>& samples) {
  CHECK(!samples.empty());
  double last_rows = 0;
  for (const StepSample& sample : samples) {
    StepLoad load;
    Add(load, 0, sample.rows, false);
    load.logit_rows = sample.wanted;
    last_rows = Rows(load);
    Point* nearest = std::min_element(points_.begin(), points_.end(), [&](auto& a, auto& b) {
      return std::abs(std::log(a.rows / last_rows)) < std::abs(std::log(b.rows / last_rows));
    });
    nearest->seconds = sample.seconds;
    nearest->known = true;
  }
  // An operation of attention takes as long as one of a product, where these run fastest.
  attention_s_ = samples.back().seconds * row_ops_ / Work(last_rows);
  FillUnknown();
  for (size_t i = 0; i < points_.size(); ++i) Straighten(i);
}

void MeasuredStepTimes::Observe(const StepLoad& load, double seconds) {
  const double predicted = Seconds(load);
  if (!(predicted > 0)) return;
  const double off = std::clamp(seconds / predicted, 1 / kMostOff, kMostOff) - 1;
  error_ += (std::abs(off) - error_) * kErrorRate;
  const double rows = Rows(load);
  const double by_rows = Curve(rows) / predicted, by_attention = 1 - by_rows;
  // Each part moves by its share in the time, and all together by the rate, however many they are:
  // a prompt whose steps grow longer with its context would otherwise keep ahead of its prediction.
  const double part = off / (by_rows * by_rows + by_attention * by_attention);
  const auto [lower, upper, weight] = Find(rows);
  const double heavier = std::max(weight, 1 - weight);
  Move(lower, part * by_rows, (1 - weight) / heavier);
  if (upper != lower) Move(upper, part * by_rows, weight / heavier);
  attention_s_ *= 1 + kRate * part * by_attention;
  FillUnknown();
  Straighten(lower);
  Straighten(upper);
}

// Moves a point that is off by that part of its time. nearness: 1 for the nearer of two, less for
// the other, which counts as seen only if it was not much farther away.
void MeasuredStepTimes::Move(size_t index, double off, double nearness) {
  Point& point = points_[index];
  const double rate = point.visits < kFirstVisits ? kFirstRate : kRate;
  point.seconds *= 1 + rate * off * nearness;
  if (nearness < 0.5) return;
  point.known = true;
  ++point.visits;
}

// More rows never take less time: the other points give way.
void MeasuredStepTimes::Straighten(size_t index) {
  const double seconds = points_[index].seconds;
  for (size_t i = 0; i < index; ++i) points_[i].seconds = std::min(points_[i].seconds, seconds);
  for (size_t i = index + 1; i < points_.size(); ++i)
    points_[i].seconds = std::max(points_[i].seconds, seconds);
}

Json MeasuredStepTimes::ToJson() const {
  Json rows = Json::MakeArray(), seconds = Json::MakeArray();
  for (const Point& point : points_) {
    rows.Append(point.rows);
    seconds.Append(point.seconds);
  }
  Json out = Json::MakeObject();
  out.Set("rows", std::move(rows));
  out.Set("seconds", std::move(seconds));
  out.Set("attention_seconds", attention_s_);
  out.Set("margin", Margin());
  return out;
}

StepBound BoundOfSteps(const EngineOptions& options, size_t steps_in_flight) {
  const auto steps = static_cast<double>(steps_in_flight);
  if (options.max_step_ms) {
    const double seconds = *options.max_step_ms * 1e-3 / steps;
    return {seconds, seconds, 0};
  }
  if (!options.has_frontend) return {};
  // Decodes then take an eighth of a step: the price of a prompt's speed. Below a tenth of a second
  // nobody who reads a stream gains, above half a second they see it halt. But a mixture computes
  // so few rows in half a second that most of it is spent on reading experts: there longer steps
  // hold streams up less in all, since there are far fewer of them.
  return {.least_s = 0.1 / steps,
          .most_s = 0.5 / steps,
          .per_decode = 8,
          .slow_s = 1 / steps,
          .slow_alone_s = 2 / steps};
}

std::string Describe(const StepBound& bound) {
  const auto ms = [](double seconds) { return std::lround(seconds * 1000); };
  if (bound.per_decode == 0) return StrCat("steps of up to ", ms(bound.most_s), " ms");
  return StrCat("steps of up to ", bound.per_decode, " times their decodes, from ",
                ms(bound.least_s), " to ", ms(bound.most_s), " ms, or ", ms(bound.slow_s),
                " (alone ", ms(bound.slow_alone_s), ") if shorter ones would be slow");
}

SampleChoice FirstSamples() { return {.rows = {1, 16, 64}, .until_rows_count = true}; }

}  // namespace pinion
