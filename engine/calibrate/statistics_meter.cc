#include "engine/calibrate/statistics_meter.h"

#include <algorithm>
#include <cmath>

#include "engine/calibrate/gram.h"

namespace pinion {
namespace {

constexpr size_t kRowsAtOnce = 512;  // a window of the text

}  // namespace

void StatisticsMeter::Add(const Worker& worker, const InputRows& rows, size_t tokens,
                          InputStatistics& inputs) {
  for (size_t first = 0; first < rows.rows; first += kRowsAtOnce)
    AddSome(worker, rows, first, std::min(kRowsAtOnce, rows.rows - first), tokens, inputs);
}

void StatisticsMeter::AddSome(const Worker& worker, const InputRows& rows, size_t first,
                              size_t count, size_t tokens, InputStatistics& inputs) {
  const size_t k = rows.k;
  if (worker.thread == 0) Begin(count, k, tokens, inputs);
  worker.TeamBarrier();
  const auto [begin, end] = worker.Slice(count);
  for (size_t row = begin; row < end; ++row) Read(rows, first + row, row);
  worker.TeamBarrier();
  if (worker.thread == 0) Sample(count, tokens, inputs);
  Measure(worker, count, inputs);
  worker.TeamBarrier();
  if (!wants_gram_) return;
  AddOuterProducts(table_, worker,
                   {inputs.gram.data(), k, k, columns_.data(), columns_.data(), depth_, 1});
  worker.TeamBarrier();
}

// One thread allocates the memory that all of them write.
void StatisticsMeter::Begin(size_t count, size_t k, size_t tokens, InputStatistics& inputs) {
  rows_.Resize(count * k);
  pair_squares_.resize(count);
  depth_ = kernels::RoundUp(count, kernels::kPadK);
  if (wants_gram_) columns_.Resize(k * depth_);
  if (inputs.k == k) return;
  inputs.k = k;
  inputs.largest.assign(k, 0);
  inputs.sums.assign(k, 0);
  inputs.sample.Resize(std::min(kSampleRows, tokens) * inputs.k_padded());
  if (wants_gram_) inputs.gram.Resize(k * k);
}

void StatisticsMeter::Read(const InputRows& rows, size_t row, size_t to) {
  const auto [src, type] = rows.at(row);
  float* x = rows_.data() + to * rows.k;
  table_.convert(reinterpret_cast<std::byte*>(x), kernels::Dtype::kF32, src, type, rows.k);
  double squares = 0, fourths = 0;
  for (size_t i = 0; i < rows.k; ++i) {
    const double square = double{x[i]} * x[i];
    squares += square;
    fourths += square * square;
  }
  // The sum of (x[i] x[j])^2 over all i != j, without visiting every pair.
  pair_squares_[to] = squares * squares - fourths;
}

void StatisticsMeter::Sample(size_t count, size_t tokens, InputStatistics& inputs) const {
  const size_t wanted = std::min(kSampleRows, tokens);
  for (size_t row = 0; row < count; ++row, ++inputs.rows) {
    inputs.pair_squares += pair_squares_[row];
    if (inputs.sample_rows == wanted) continue;
    // Evenly spread: a row is taken whenever the share of wanted rows reaches the next whole
    // number.
    if ((inputs.rows + 1) * wanted / tokens == inputs.rows * wanted / tokens) continue;
    std::copy_n(rows_.data() + row * inputs.k, inputs.k,
                inputs.sample.data() + inputs.sample_rows++ * inputs.k_padded());
  }
}

void StatisticsMeter::Measure(const Worker& worker, size_t count, InputStatistics& inputs) {
  // Threads share channels, not rows, so that the sums do not depend on the number of threads.
  const auto [first, last] = worker.Slice(inputs.k);
  for (size_t row = 0; row < count; ++row) {
    const float* x = rows_.data() + row * inputs.k;
    for (size_t i = first; i < last; ++i) {
      const float magnitude = std::abs(x[i]);
      inputs.largest[i] = std::max(inputs.largest[i], magnitude);
      inputs.sums[i] += magnitude;
      if (wants_gram_) columns_.data()[i * depth_ + row] = x[i];
    }
  }
}

}  // namespace pinion
