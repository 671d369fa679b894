#pragma once

#include <string>
#include <vector>

#include "harness/store/store.h"

namespace pinion::harness {

// Candidates without settings: "default", the baseline, then "c1", "c2", ...
inline std::vector<CandidateRow> MadeUpRows(size_t count) {
  std::vector<CandidateRow> rows(count);
  for (size_t i = 0; i < count; ++i) {
    rows[i].id = static_cast<int>(i);
    rows[i].label = i ? "c" + std::to_string(i) : "default";
    rows[i].is_baseline = i == 0;
  }
  return rows;
}

}  // namespace pinion::harness
