#pragma once

#include <string>

#include "harness/results/results.h"

// Advice of a sweep as a whole, put together from its verdicts (`words.h`).

namespace pinion::harness {

// The report's first sentence, over all objectives: "The defaults are best: isa=avx2 is 26 % worse
// (16 to 30 %).", or "Use isa=avx2: 42 % more tokens per second and 12 % faster answers than the
// defaults; for cores keep the defaults." If objectives without a winner found different things it
// leaves the numbers to their cards: "Keep the defaults: nothing better was found for throughput,
// latency or balance." Of a pair it is PairHeadline.
std::string Answer(const Results& results);

// The evidence for its recommendation: "Confirmed in 6 fresh rounds; nothing else comes within 5 %
// of it. With 8 clients 95 % of first tokens arrive within 1.63 s (defaults: 2.32 s)."; empty if
// only the defaults are recommended, and of a pair.
std::string Support(const Results& results);

}  // namespace pinion::harness
