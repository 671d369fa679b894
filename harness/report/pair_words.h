#pragma once

#include <string>

#include "harness/results/results.h"

// The words of a comparison of two (`pinion compare`, strategy pair), which recommends nothing: it
// says which is better, and why a side has no numbers.

namespace pinion::harness {

bool IsPair(const Results& results);

// "B is 26 % worse (16 to 30 %) than A", "No difference was found between B and A", "B was
// disqualified: its memory ...".
std::string PairHeadline(const Results& results, const Verdict& verdict);

// "failed: ended by signal 9", "was not measured: by exact bytes ..."; empty if it was measured or
// is still to be.
std::string WhyExcluded(const Candidate& candidate);

// "no difference was found" or, if the estimate exceeds epsilon and only its interval does not
// exclude chance, "no difference was proven".
std::string NoDifference(const Results& results, const Verdict& verdict);

}  // namespace pinion::harness
