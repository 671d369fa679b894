#pragma once

#include <string>
#include <vector>

#include "harness/stats/estimate.h"

// Numbers formatted for people, in the same way in every report and table.

namespace pinion::harness {

// "41.3 tokens/s", "183 ms", "2.1 GiB": three significant digits in a unit that fits, and whole
// numbers from 100 on ("125,876 tokens/s").
std::string FormatFigure(const std::string& unit, double value);
// "712 to 742 tokens/s": the unit once if it suits both ends.
std::string FormatRange(const std::string& unit, double low, double high);

// 1.082 -> "+8.2 %"; from 10 on "12.4 times".
std::string FormatChange(double ratio);
// The same with no more digits than its interval supports: "+89 %" if that is 47 points wide.
std::string FormatChange(const Estimate& ratio);
// "+3.1 to +9.0 %"; "no interval (n = 4)" if there are too few rounds for one.
std::string FormatChangeInterval(const Estimate& ratio);
// "8.2 % [6.1, 10.3]", with whole percents as above; no brackets without an interval.
std::string FormatGain(const Estimate& ratio);
// "26 % worse (16 to 30 %)" of a ratio below 1; no parentheses without an interval.
std::string FormatLoss(const Estimate& ratio);

// "a", "a and b", "a, b and c"
std::string Listed(const std::vector<std::string>& items, const char* last = "and");
std::string FormatSeconds(double seconds);  // "48 s", "8 min 20 s"

// 0.021 -> "2.1 %"; from 100 % on "a factor of 2.50".
std::string FormatShareOrFactor(double fraction);

}  // namespace pinion::harness
