#include "engine/calibrate/expert_rows.h"

#include <cstring>
#include <utility>

namespace pinion {

void ExpertRows::See(const Worker& worker, const ObservedRows& rows) {
  const bool begins = rows.role == MatrixRole::kExpertIn;
  const size_t row_bytes = rows.k * kernels::SizeOf(rows.type);
  if (worker.thread == 0) {
    if (begins) steps_.push_back({*rows.plan, {}, {}});
    type_ = rows.type;
    StoredRows& kept = begins ? steps_.back().in : steps_.back().down;
    kept.k = rows.k;
    kept.rows.resize(rows.rows * row_bytes);
  }
  worker.TeamBarrier();
  StoredRows& kept = begins ? steps_.back().in : steps_.back().down;
  const auto [first, last] = worker.Slice(rows.rows);
  for (size_t row = first; row < last; ++row)
    std::memcpy(kept.rows.data() + row * row_bytes,
                rows.x + row * rows.stride * kernels::SizeOf(rows.type), row_bytes);
  worker.TeamBarrier();
}

size_t ExpertRows::tokens(size_t expert) const {
  size_t tokens = 0;
  for (const Step& step : steps_) tokens += step.plan.tokens(expert);
  return tokens;
}

InputRows ExpertRows::Of(MatrixRole role, size_t expert) const {
  std::vector<const std::byte*> rows;
  size_t k = 0;
  for (const Step& step : steps_) {
    const bool in = role == MatrixRole::kExpertIn;
    const StoredRows& kept = in ? step.in : step.down;
    k = kept.k;
    for (size_t at = step.plan.first(expert); at < step.plan.first(expert + 1); ++at)
      rows.push_back(kept.rows.data() + (in ? step.plan.row(at) : at) * k * kernels::SizeOf(type_));
  }
  const size_t count = rows.size();
  return {count, k, [rows = std::move(rows), type = type_](size_t row) {
            return std::make_pair(rows[row], type);
          }};
}

InputStatistics ExpertRows::StatisticsOf(MatrixRole role, size_t expert,
                                         const kernels::Table& table, Ranks& ranks,
                                         bool wants_gram) const {
  const InputRows rows = Of(role, expert);
  InputStatistics inputs;
  StatisticsMeter meter(table, wants_gram);
  ranks.Run([&](const Worker& worker) { meter.Add(worker, rows, rows.rows, inputs); });
  return inputs;
}

}  // namespace pinion
