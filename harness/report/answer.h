#pragma once

#include <string>

#include "harness/results/results.h"

// What a sweep as a whole advises, put together from its verdicts (`words.h`).

namespace pinion::harness {

// The report's first sentence, over all objectives: "The defaults are best: isa=avx2 is 26 % worse
// (16 to 30 %).", or "Use isa=avx2: 42 % [38, 46] more tokens per second than the defaults; for
// latency keep the defaults."
std::string Answer(const Results& results);

// The evidence for its recommendation: "Confirmed in 6 fresh rounds; nothing else comes within 5 %
// of it. With 8 clients 95 % of first tokens arrive within 1.63 s (defaults: 2.32 s)."; empty if
// only the defaults are recommended.
std::string Support(const Results& results);

}  // namespace pinion::harness
